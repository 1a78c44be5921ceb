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

// death is what is known of a process that ended by SIGKILL and that we did not kill.
type death int

const (
	deathUnknown death = iota // nobody counts the kills
	deathByMemory
	deathByOthers // no kill of the kernel's is left that could have been this one
)

// explain adds to the exit of a child how it came to a SIGKILL. A program cannot kill the
// first process of its own namespace, so what the kernel did not kill for want of memory
// was killed by somebody outside.
func (j *Jail) explain(e exit, c *call) exit {
	c.mu.Lock()
	killed := c.killed
	c.mu.Unlock()
	if !killed && e.status.Signaled() && e.status.Signal() == unix.SIGKILL {
		e.oom = j.group.claim()
	}
	return e
}

// cause accounts for the end of a zygote, and says what it adds to its exit status.
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

// claim accounts for a process of the cgroup that was killed by a signal. The kernel
// counts a kill before it sends the signal.
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

// oomKills returns how many processes of the cgroup the kernel has killed for want of
// memory; false where it does not count.
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
