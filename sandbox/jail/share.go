package jail

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A program gets its first look after it has run for firstLook, then one each time it has run
// twice as long as at the last look, and at least once in longestRest. A look costs a
// tenth of a short call, and on a busy machine even a short call takes long.
const (
	firstLook   = 100 * time.Millisecond
	longestRest = time.Second
)

// demandKey is the context key of the listener of OnDemand.
type demandKey struct{}

// Demand is the observed demand of a program for a core, and its use of it.
type Demand struct {
	Core bool          // it has a core or wants one
	Used time.Duration // processor time
}

// Listener gets the demand of a program when it begins and from time to time after that,
// from one goroutine at a time. If it returns a channel, the program of a call stops until
// the channel is closed; a cell of a kernel ignores the channel.
type Listener func(Demand) (resume <-chan struct{})

// OnDemand returns a context that reports the demand of the program that runs under it to
// f.
func OnDemand(ctx context.Context, f Listener) context.Context {
	return context.WithValue(ctx, demandKey{}, f)
}

// ReportDemand calls the listener of ctx, if there is one. It is for code that runs
// programs.
func ReportDemand(ctx context.Context, d Demand) (resume <-chan struct{}) {
	if f, ok := ctx.Value(demandKey{}).(Listener); ok {
		return f(d)
	}
	return nil
}

// cpuShare gives a program the share of one thread, however many it has, and reports
// whether it wants a core. Threads compete individually, so the threads of a program that
// has many get a higher niceness, until all of them together have the weight of one.
type cpuShare struct {
	call    *call
	report  Listener
	resume  <-chan struct{} // the last answer of report
	due     time.Duration   // time of the next look
	known   bool            // at and threads hold the values of the last look
	at      time.Duration
	threads map[int]schedTimes
}

func newCPUShare(ctx context.Context, c *call) *cpuShare {
	report := func(d Demand) <-chan struct{} { return ReportDemand(ctx, d) }
	report(Demand{Core: true})
	return &cpuShare{call: c, report: report, due: firstLook}
}

// check looks at a program that has run for elapsed and used cpu, if a look is due. It
// returns the time until the next look.
func (s *cpuShare) check(elapsed, cpu time.Duration, look func() threadStats) time.Duration {
	if elapsed >= s.due {
		s.apply(look(), elapsed, cpu)
		s.due = elapsed + min(elapsed, longestRest)
	}
	return s.due - elapsed
}

// apply renices the program and reports its demand after a look.
func (s *cpuShare) apply(now threadStats, elapsed, cpu time.Duration) {
	if now.threads == nil || now.ended {
		return
	}
	s.renice(now, max(now.runnable, s.mean(now, elapsed)))
	s.expose(s.call.known())
	s.known, s.at, s.threads = true, elapsed, now.threads
	s.resume = s.report(Demand{Core: now.runnable > 0, Used: cpu})
}

// mean returns how many threads wanted a core on average since the last look. A program
// gains nothing if its threads pause at the moment of a look.
func (s *cpuShare) mean(now threadStats, elapsed time.Duration) int {
	if !s.known || elapsed <= s.at {
		return 0
	}
	var wanted time.Duration
	for id, t := range now.threads {
		before := s.threads[id]
		wanted += t.ran - before.ran + t.waited - before.waited
	}
	return int(math.Round(float64(wanted) / float64(elapsed-s.at)))
}

// renice gives every thread the niceness at which runnable threads have the weight of one.
// New threads inherit it. An owner that may not lower a niceness leaves it as it is.
func (s *cpuShare) renice(now threadStats, runnable int) {
	nice := niceOf(runnable)
	if nice == s.call.nice {
		return
	}
	s.call.nice = nice
	for id := range now.threads {
		// A thread that has ended meanwhile causes an error without effect.
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, nice)
	}
}

// niceStep is the ratio between the weights of two adjacent niceness values, and
// nicest the largest niceness.
const (
	niceStep = 1.25
	nicest   = 19
)

func niceOf(threads int) int {
	if threads <= 1 {
		return 0
	}
	return min(nicest, int(math.Ceil(math.Log(float64(threads))/math.Log(niceStep))))
}

// OOM scores: how likely the kernel chooses a process to kill, in thousandths of the
// machine's memory. A program inherits the score of its zygote and gets a higher one
// at its first look, so that the kernel chooses programs before the zygote, which may
// be the largest process.
const (
	oomZygote  = 300
	oomProgram = 600
	oomMost    = 1000
)

// expose raises the OOM score of a program that holds much of /tmp. Files in /tmp count as
// no process's resident memory, so the score makes up for them.
func (s *cpuShare) expose(pid int) {
	score := oomProgram
	if group := s.call.zygote.jail.group; group != nil && group.memory > 0 {
		score = min(oomMost, score+int(1000*tmpBytes(pid)/group.memory))
	}
	if pid <= 0 || score == s.call.score {
		return
	}
	if setOOMScore(pid, score) == nil {
		s.call.score = score
	}
}

// tmpBytes returns the bytes in the /tmp of a program, or zero where it cannot be seen.
func tmpBytes(pid int) int64 {
	var fs unix.Statfs_t
	if unix.Statfs("/proc/"+strconv.Itoa(pid)+"/root/tmp", &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize
}

// setOOMScore sets the OOM score of a process; raising it is always allowed.
func setOOMScore(pid, score int) error {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
