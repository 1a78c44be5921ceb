package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"temper/internal/series"
)

// Meter measures spans of time in one process.
type Meter struct {
	// supervisor is the process whose child is the sandbox, 0 for none.
	supervisor   int
	host, worker string
}

// NewMeter returns a Meter. supervisor is the process that started this one and the sandbox; 0
// where the sandbox is somewhere else.
func NewMeter(supervisor int) *Meter {
	host, _ := os.Hostname() // "" is a name, too
	return &Meter{supervisor: supervisor, host: host, worker: fmt.Sprintf("%s/%d", host, os.Getpid())}
}

// reading is the state of the machine's clocks at one moment.
type reading struct {
	at               time.Time
	process, sandbox time.Duration
	busy, idle       time.Duration
	cores            int
}

// Span is a stretch of work that is being measured.
type Span struct {
	m     *Meter
	begun reading
}

// Begin begins a span. A nil Meter measures nothing.
func (m *Meter) Begin() Span {
	if m == nil {
		return Span{}
	}
	return Span{m, m.read()}
}

// End returns what was busy since Begin; nil of a nil Meter.
func (s Span) End() *series.Busy {
	if s.m == nil {
		return nil
	}
	now := s.m.read()
	return &series.Busy{
		Host: s.m.host, Worker: s.m.worker, Cores: now.cores, Wall: now.at.Sub(s.begun.at),
		Process: max(0, now.process-s.begun.process), Sandbox: max(0, now.sandbox-s.begun.sandbox),
		Machine: max(0, now.busy-s.begun.busy), Idle: max(0, now.idle-s.begun.idle), PeakMemory: peakMemory(),
	}
}

func (m *Meter) read() reading {
	r := reading{at: time.Now(), process: ownTime()}
	r.busy, r.idle, r.cores = machineTimes("/proc/stat")
	if m.supervisor > 0 {
		r.sandbox = sandboxTime(m.supervisor)
	}
	return r
}

// ownTime is the processor time of this process, without its children.
func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory is the most memory that this process has held, in bytes.
func peakMemory() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Maxrss) << 10
}

// tick is the unit of times in /proc: Linux shows all programs a hundredth of a second.
const tick = 10 * time.Millisecond

// machineTimes reads the times of all cores since the start. A core that waits for a disk
// is idle. Time that a hypervisor gave to other machines is neither.
func machineTimes(path string) (busy, idle time.Duration, cores int) {
	data, err := os.ReadFile(path) //nolint:gosec // a path of /proc
	if err != nil {
		return 0, 0, 0
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 8 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			continue
		}
		if len(fields[0]) > len("cpu") {
			cores++
			continue
		}
		for i, f := range fields[1:8] { // user, nice, system, idle, iowait, irq, softirq
			n, err := strconv.ParseInt(string(f), 10, 64)
			switch {
			case err != nil:
			case i == 3 || i == 4:
				idle += time.Duration(n) * tick
			default:
				busy += time.Duration(n) * tick
			}
		}
	}
	return busy, idle, cores
}

// processTime is one process as /proc shows it.
type processTime struct {
	parent int
	// time is its own and that of the children that it has waited for.
	time time.Duration
}

// sandboxTime is the processor time of the sandbox that a supervisor has started, with all
// programs that have run in it.
func sandboxTime(supervisor int) time.Duration {
	all := processTimes()
	var sum time.Duration
	for pid, p := range all {
		if root := childOf(all, pid, supervisor); root > 0 && isSandbox(root) {
			sum += p.time
		}
	}
	return sum
}

// childOf is the child of top that pid descends from, or is itself; 0 for none.
func childOf(all map[int]processTime, pid, top int) int {
	for range 64 { // deeper trees are loops of reused ids
		p, ok := all[pid]
		switch {
		case !ok || p.parent == 0:
			return 0
		case p.parent == top:
			return pid
		}
		pid = p.parent
	}
	return 0
}

// isSandbox reports whether a process is `temper role sandbox`.
func isSandbox(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")) //nolint:gosec // a path of /proc
	if err != nil {
		return false
	}
	words := bytes.Split(line, []byte{0})
	return len(words) > 1 && string(words[1]) == "sandbox"
}

func processTimes() map[int]processTime {
	out := map[int]processTime{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return out
	}
	for _, path := range stats {
		data, err := os.ReadFile(path) //nolint:gosec // a path of /proc
		if err != nil {
			continue // the process ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if p, ok := parseStat(data); err == nil && ok {
			out[pid] = p
		}
	}
	return out
}

// parseStat reads one /proc/PID/stat.
func parseStat(data []byte) (processTime, bool) {
	// The name in parentheses may hold anything; fields are counted after it.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 15 {
		return processTime{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return processTime{}, false
	}
	p := processTime{parent: parent}
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return processTime{}, false
		}
		p.time += time.Duration(n) * tick
	}
	return p, true
}
