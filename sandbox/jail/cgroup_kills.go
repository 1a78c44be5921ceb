package jail

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// death is the known cause of a SIGKILL that the owner did not send.
type death int

const (
	deathUnknown death = iota // the kernel does not count kills here
	deathByMemory
	deathByOthers // all kills of the kernel belong to other processes
)

// explain adds the cause of a SIGKILL to the exit of a child. A program cannot kill the
// first process of its pid namespace. So if the kernel did not kill it for lack of memory,
// a process outside the jail did.
func (j *Jail) explain(e exit, c *call) exit {
	c.mu.Lock()
	killed := c.killed
	c.mu.Unlock()
	if !killed && e.status.Signaled() && e.status.Signal() == unix.SIGKILL {
		e.oom = j.group.claim()
	}
	return e
}

// cause assigns a kill to the end of a zygote and returns its text for the error.
func (z *zygote) cause() string {
	status, ok := z.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if z.killed.Load() || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return ""
	}
	if z.jail.group.claim() == deathByMemory {
		return ", out of memory"
	}
	return ""
}

// claim assigns one counted kill to a process of the cgroup that died by a signal. The
// kernel counts a kill before it sends the signal.
func (c *cgroup) claim() death {
	if c == nil {
		return deathUnknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kills, counted := c.oomKills()
	switch {
	case !counted:
		return deathUnknown
	case kills > c.claimed:
		c.claimed++
		return deathByMemory
	default:
		return deathByOthers
	}
}

// oomKills returns how many processes of the cgroup the kernel has killed for lack of
// memory, or false where it does not count.
func (c *cgroup) oomKills() (int, bool) {
	text, err := os.ReadFile(c.events)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.Atoi(count)
			return n, err == nil
		}
	}
	return 0, false
}
