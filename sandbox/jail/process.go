package jail

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// cpuTime returns the processor time of the program so far, all threads
// together; zero when the zygote does not answer.
func (c *call) cpuTime() time.Duration {
	used, _ := c.ask(patience)
	return used.cpu
}

// peakMemory returns the largest resident size of the program so far; zero when
// the kernel does not tell.
func (c *call) peakMemory() int64 {
	text, _ := status(c.hostPID(), "VmHWM") // zero is the answer without it
	kib, err := strconv.ParseInt(string(bytes.TrimSuffix(text, []byte(" kB"))), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// hostPID returns the process id of a living child as this process sees it, or -1.
// The zygote knows it in its own namespace; the kernel lists both side by side.
func (c *call) hostPID() int {
	c.mu.Lock()
	known := c.pid
	c.mu.Unlock()
	if known != 0 {
		return known
	}
	used, ok := c.ask(patience)
	if !ok {
		return -1
	}
	return c.findPID(used.pid)
}

// findPID returns the process id of the child that has the id inside in the
// zygote's namespace, or -1.
func (c *call) findPID(inside int) int {
	c.mu.Lock()
	known := c.pid
	c.mu.Unlock()
	if known != 0 {
		return known
	}
	zygote := c.zygote.pid()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", zygote, zygote))
	if err != nil {
		return -1
	}
	for _, field := range slices.Backward(bytes.Fields(children)) { // the youngest is last
		pid, err := strconv.Atoi(string(field))
		if err != nil {
			continue
		}
		if ids, err := status(pid, "NSpid"); err == nil && seenAs(ids, inside) {
			c.mu.Lock()
			c.pid = pid
			c.mu.Unlock()
			return pid
		}
	}
	return -1
}

// census is what the kernel says of the threads of a program.
type census struct {
	threads map[int]turns // nil when they are not known
	ready   bool          // a thread has a core or wants one
	ended   bool          // every thread is dead

	entering bool // the program has not begun; its jail says so
	answered bool // the program says that it has ended
}

// turns is how long a thread had a core, and how long it wanted one and had none.
type turns struct{ ran, waited time.Duration }

// threads looks at the threads of a process.
func threads(pid int) census {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if pid <= 0 || err != nil {
		return census{}
	}
	c := census{threads: make(map[int]turns, len(entries)), ended: true}
	for _, entry := range entries {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		switch threadState(dir, entry.Name()) {
		case 'Z', 'X', 0: // 0: gone meanwhile
			continue
		case 'R':
			c.ready = true
		}
		c.ended = false
		if text, err := os.ReadFile(dir + "/" + entry.Name() + "/schedstat"); err == nil {
			c.threads[thread] = parseTurns(text)
		}
	}
	return c
}

// threadState returns the letter of a thread's state, 0 when it is gone.
func threadState(dir, thread string) byte {
	text, err := os.ReadFile(dir + "/" + thread + "/stat")
	// The second field is the name in parentheses, which may hold anything.
	at := bytes.LastIndexByte(text, ')') + len(") ")
	if err != nil || at >= len(text) {
		return 0
	}
	return text[at]
}

// parseTurns reads a schedstat: nanoseconds with a core, nanoseconds in its queue, and
// how often the thread got one.
func parseTurns(schedstat []byte) turns {
	var ns [2]int64
	for i, field := range bytes.Fields(schedstat) {
		if i == len(ns) {
			break
		}
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return turns{}
		}
		ns[i] = n
	}
	return turns{time.Duration(ns[0]), time.Duration(ns[1])}
}

// seenAs tells whether ids, those of a process from the outermost namespace to its
// own, has id in the namespace of the zygote. There a child is not the first
// process, which it is in a namespace of its own.
func seenAs(ids []byte, id int) bool {
	fields := bytes.Fields(ids)
	at := len(fields) - 1
	if at > 0 && string(fields[at]) == "1" {
		at--
	}
	return at >= 0 && string(fields[at]) == strconv.Itoa(id)
}

// status returns a field of /proc/PID/status.
func status(pid int, name string) ([]byte, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	_, rest, found := bytes.Cut(text, []byte("\n"+name+":"))
	if !found {
		return nil, fmt.Errorf("no field %s", name)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return bytes.TrimSpace(line), nil
}
