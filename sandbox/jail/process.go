package jail

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time of the program so far, all threads
// together; zero when the zygote does not answer.
func (c *call) cpuTime() time.Duration {
	used, _ := c.ask()
	return used.cpu
}

// peakMemory returns the largest resident size of the program so far; zero when it is
// not known.
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
	if known := c.known(); known != 0 {
		return known
	}
	used, ok := c.ask()
	if !ok {
		return -1
	}
	return c.findPID(used.pid)
}

// known returns the process id that was looked up before, or 0.
func (c *call) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// findPID returns the process id of the child that has the id inside in the
// zygote's namespace, or -1.
func (c *call) findPID(inside int) int {
	if known := c.known(); known != 0 {
		return known
	}
	if pid := c.zygote.translate(inside); pid > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pid = pid
		return pid
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
type threadStats struct {
	threads map[int]schedTimes // nil when they are not known
	waiting bool               // a thread wants a core, and none has one
	ended   bool               // no thread runs the program any more

	runnable int // threads that have a core or want one

	entering bool          // the program has not begun; its jail says so
	begun    time.Duration // when it began, or 0 where its time began with its clock
	answered bool          // the program says that it has ended
}

// turns is how long a thread had a core, and how long it wanted one and had none.
type schedTimes struct{ ran, waited time.Duration }

// A look is blurred when the owner itself lost its core meanwhile: its parts are of
// different moments. It may take lookTime, and lookTime for so many threads more.
const (
	lookTime    = time.Millisecond
	lookThreads = 8
	lookTries   = 4
)

// threads looks at the threads of a process.
func threads(pid int) (c threadStats) {
	for range lookTries {
		start := time.Now()
		c = lookOnce(pid)
		if time.Since(start) < lookTime*time.Duration(1+len(c.threads)/lookThreads) {
			break
		}
	}
	return c
}

func lookOnce(pid int) threadStats {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if pid <= 0 || err != nil {
		return threadStats{}
	}
	before := processTime(pid)
	c := threadStats{threads: make(map[int]schedTimes, len(entries)), ended: true}
	for _, entry := range entries {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		state, dead := threadState(dir, entry.Name())
		if dead {
			continue
		}
		if state == 'R' {
			c.waiting = true // or running
			c.runnable++
		}
		c.ended = false
		if text, err := os.ReadFile(dir + "/" + entry.Name() + "/schedstat"); err == nil {
			c.threads[thread] = parseSchedTimes(text)
		}
	}
	if processTime(pid) > before {
		c.waiting = false
	}
	return c
}

// processTime returns the processor time of a process so far, all threads together;
// zero when it is gone.
func processTime(pid int) time.Duration {
	var used unix.Timespec
	// The clock of a process is the complement of its id, tagged (clock_getcpuclockid(3)).
	if unix.ClockGettime(int32(^pid<<3|2), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// exiting is the bit of a thread's flags that says that it runs no program any more
// (PF_EXITING). What is left of it waits for the kernel, which may take long.
const exiting = 0x4

// threadState returns the letter of a thread's state, and whether its program is over.
func threadState(dir, thread string) (state byte, dead bool) {
	text, err := os.ReadFile(dir + "/" + thread + "/stat")
	// The second field is the name in parentheses, which may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 7 {
		return 0, true // gone meanwhile
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 32)
	state = fields[0][0]
	return state, err != nil || flags&exiting != 0 || state == 'Z' || state == 'X'
}

// parseTurns reads a schedstat: nanoseconds with a core, nanoseconds in its queue, and
// how often the thread got one.
func parseSchedTimes(schedstat []byte) schedTimes {
	var ns [2]int64
	for i, field := range bytes.Fields(schedstat) {
		if i == len(ns) {
			break
		}
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return schedTimes{}
		}
		ns[i] = n
	}
	return schedTimes{time.Duration(ns[0]), time.Duration(ns[1])}
}

// seenAs reports whether ids, those of a process from the outermost namespace to its
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
