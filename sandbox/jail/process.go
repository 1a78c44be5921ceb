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

// cpuTime returns the processor time of all threads of the program, or zero when the zygote
// does not answer.
func (c *call) cpuTime() time.Duration {
	used, _ := c.ask()
	return used.cpu
}

// peakMemory returns the largest resident size of the program, or zero when it is unknown.
func (c *call) peakMemory() int64 {
	text, _ := status(c.hostPID(), "VmHWM") // without it the result is zero
	kib, err := strconv.ParseInt(string(bytes.TrimSuffix(text, []byte(" kB"))), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// hostPID returns the process id of a living child in this process's namespace, or -1. The
// zygote knows the id in its namespace; the kernel lists both together.
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

// known returns the process id of an earlier lookup, or 0.
func (c *call) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// findPID returns the process id of the child whose id in the zygote's namespace is inside,
// or -1.
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

// threadStats is the state of the threads of a program.
type threadStats struct {
	threads map[int]schedTimes // nil when they are unknown
	waiting bool               // a thread wants a core, and no thread has one
	ended   bool               // no thread still runs the program

	runnable int // threads that have a core or want one

	entering bool          // the jail reports that the program has not begun
	begun    time.Duration // when the program began; 0 if its time starts with the fork
	answered bool          // the program claims that it has ended
}

// schedTimes holds how long a thread had a core, and how long it waited for one.
type schedTimes struct{ ran, waited time.Duration }

// A look is inconsistent when the owner itself lost its core meanwhile: its parts come from
// different moments. It may take lookTime, and another lookTime for each lookThreads threads.
const (
	lookTime    = time.Millisecond
	lookThreads = 8
	lookTries   = 4
)

// threads returns the state of the threads of a process.
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

// processTime returns the processor time of all threads of a process, or zero when it is
// gone.
func processTime(pid int) time.Duration {
	var used unix.Timespec
	// The clock of a process is the complement of its id, tagged (clock_getcpuclockid(3)).
	if unix.ClockGettime(int32(^pid<<3|2), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// exiting is the flag of a thread that no longer runs a program (PF_EXITING). The kernel
// may take long to remove such a thread.
const exiting = 0x4

// threadState returns the letter of a thread's state, and whether its program has ended.
func threadState(dir, thread string) (state byte, dead bool) {
	text, err := os.ReadFile(dir + "/" + thread + "/stat")
	// The second field is the name in parentheses, which may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 7 {
		return 0, true // it has ended meanwhile
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 32)
	state = fields[0][0]
	return state, err != nil || flags&exiting != 0 || state == 'Z' || state == 'X'
}

// parseSchedTimes reads a schedstat file: nanoseconds with a core, nanoseconds in the queue
// of a core, and how often the thread got one.
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

// seenAs reports whether ids, the ids of a process from the outermost namespace to the
// innermost, contains id in the namespace of the zygote. The last one is 1 in every child,
// so it does not count.
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
