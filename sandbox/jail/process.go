package jail

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// askPatience is how long a figure of a running child may take.
const askPatience = 2 * time.Second

// cpuTime returns the processor time of the program so far, all threads
// together; zero when the zygote does not tell.
func (c *call) cpuTime() time.Duration {
	used, _ := c.ask(askPatience)
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
	used, ok := c.ask(askPatience)
	if !ok {
		return -1
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
		if ids, err := status(pid, "NSpid"); err == nil && seenAs(ids, used.pid) {
			c.mu.Lock()
			c.pid = pid
			c.mu.Unlock()
			return pid
		}
	}
	return -1
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
