package jail

import (
	"context"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A program is looked at when it has run for firstLook, then each time it has run for
// twice as long as at the look before, and at least once in longestRest. A look costs a
// tenth of a short call, which on a busy machine takes long without being long.
const (
	firstLook   = 100 * time.Millisecond
	longestRest = time.Second
)

// demandKey finds the listener of OnDemand in a context.
type demandKey struct{}

// Demand is what a program was seen to want and to have used.
type Demand struct {
	Core bool          // it has a core or wants one
	Used time.Duration // processor time
}

// Listener hears of a program when it begins, and from time to time after that, by one
// goroutine at a time. With a channel it answers that the program of a call has to stop
// until that is closed; a cell goes on.
type Listener func(Demand) (resume <-chan struct{})

// OnDemand returns a context that tells f the demand of the program that runs under it.
func OnDemand(ctx context.Context, f Listener) context.Context {
	return context.WithValue(ctx, demandKey{}, f)
}

// TellDemand tells the listener of ctx, if there is one; it is for whoever runs a program.
func ReportDemand(ctx context.Context, d Demand) (resume <-chan struct{}) {
	if f, ok := ctx.Value(demandKey{}).(Listener); ok {
		return f(d)
	}
	return nil
}

// share gives a program the share of one thread, however many it has, and says whether
// it wants a core at all. Threads compete one by one, so those of a program that has
// many are made nicer, until all of them together have the weight of one.
type cpuShare struct {
	call    *call
	report  Listener
	resume  <-chan struct{} // the last answer
	due     time.Duration   // of the next look
	known   bool            // the next two are of a look
	at      time.Duration
	threads map[int]schedTimes
}

func newCPUShare(ctx context.Context, c *call) *cpuShare {
	report := func(d Demand) <-chan struct{} { return ReportDemand(ctx, d) }
	report(Demand{Core: true})
	return &cpuShare{call: c, report: report, due: firstLook}
}

// check looks at a program that has run for elapsed and used cpu if that is due, and
// returns the time until the next look.
func (s *cpuShare) check(elapsed, cpu time.Duration, look func() threadStats) time.Duration {
	if elapsed >= s.due {
		s.apply(look(), elapsed, cpu)
		s.due = elapsed + min(elapsed, longestRest)
	}
	return s.due - elapsed
}

// apply acts on a look.
func (s *cpuShare) apply(now threadStats, elapsed, cpu time.Duration) {
	if now.threads == nil || now.ended {
		return
	}
	s.renice(now, max(now.runnable, s.mean(now, elapsed)))
	s.expose(s.call.known())
	s.known, s.at, s.threads = true, elapsed, now.threads
	s.resume = s.report(Demand{Core: now.runnable > 0, Used: cpu})
}

// mean is how many threads wanted a core, on average, since the look before; so a
// program gains nothing when its threads rest at the moment of a look.
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

// renice gives every thread the niceness at which that many have the weight of one. New
// threads inherit it. Without the right to undo it, it stays.
func (s *cpuShare) renice(now threadStats, runnable int) {
	nice := niceOf(runnable)
	if nice == s.call.nice {
		return
	}
	s.call.nice = nice
	for id := range now.threads {
		// One that has ended meanwhile needs nothing.
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, nice)
	}
}

// niceStep is the weight of a thread divided by that of one that is nicer by one, and
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

// How much the kernel's choice of a process to kill is moved, in thousandths of the
// memory that there is. A zygote has what it forks; each program begins with that and
// is moved up with its first look, so that the zygote, which may be the largest, comes
// after them.
const (
	oomZygote  = 300
	oomProgram = 600
	oomMost    = 1000
)

// expose makes a program that holds much of /tmp, which is nobody's resident memory,
// as likely to be chosen as one that has allocated it.
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

// tmpBytes is what the /tmp of a program holds; zero where it cannot be seen.
func tmpBytes(pid int) int64 {
	var fs unix.Statfs_t
	if unix.Statfs("/proc/"+strconv.Itoa(pid)+"/root/tmp", &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize
}

// setOOMScore moves the kernel's choice; raising it is always allowed.
func setOOMScore(pid, score int) error {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
