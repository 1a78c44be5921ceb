package scheduler_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"temper/internal/inference/scheduler"
)

const (
	costEngines = 64
	costRows    = 250
)

// loaded is a fleet whose engines are full, with their rows of all ages and many
// trajectories waiting.
type loaded struct {
	s       *scheduler.Scheduler
	attempt map[string]int
	live    []string
	next    int
	passes  int64
}

func newLoaded(tb testing.TB) *loaded {
	tb.Helper()
	cfg := scheduler.DefaultConfig()
	cfg.Cost.Knee = 0
	s, err := scheduler.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	l := &loaded{s: s, attempt: map[string]int{}}
	for i := range costEngines {
		l.handle(tb, scheduler.Join{Engine: fmt.Sprint(i), Capacity: 1_080_000})
	}
	l.submit(tb, costEngines*costRows*5/4)
	for range 40 { // rows of all ages: some end, others start
		l.passes += 100
		for i := range costEngines {
			l.handle(tb, scheduler.Advance{Engine: fmt.Sprint(i), Passes: l.passes})
		}
		for range costEngines * costRows / 40 {
			l.finish(tb)
		}
		l.submit(tb, costEngines*costRows/40)
	}
	return l
}

func (l *loaded) handle(tb testing.TB, e scheduler.Event) {
	out, err := l.s.Handle(0, e)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range out {
		if d.Kind == scheduler.Start {
			if l.attempt[d.ID] == 0 {
				l.live = append(l.live, d.ID)
			}
			l.attempt[d.ID] = d.Attempt
		}
	}
}

func (l *loaded) submit(tb testing.TB, n int) {
	var list []scheduler.Trajectory
	for range n {
		l.next++
		list = append(list, scheduler.Trajectory{ID: fmt.Sprint(l.next), Run: "r", Problem: fmt.Sprint(l.next / 32), Prompt: 500, Limit: 12_000})
	}
	l.handle(tb, scheduler.Submit{Trajectories: list})
}

// finish ends the trajectory that started first, which lets another one start.
func (l *loaded) finish(tb testing.TB) {
	id := l.live[0]
	l.live = l.live[1:]
	l.handle(tb, scheduler.Finish{ID: id, Attempt: l.attempt[id], Context: 4500})
}

// cpu is the processor time of this process: other work on the machine does not add to it.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDecision ends a trajectory and places another: 64 engines of about 250.
func BenchmarkDecision(b *testing.B) {
	l := newLoaded(b)
	st := l.s.Stats()
	if st.Waiting < 100 {
		b.Fatalf("%+v: nothing waits", st)
	}
	b.ReportMetric(float64(st.Running)/costEngines, "rows/engine")
	b.ReportAllocs()
	l.submit(b, b.N)
	b.ResetTimer()
	begin := cpu(b)
	for range b.N {
		l.finish(b)
	}
	b.ReportMetric(float64((cpu(b)-begin).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
}

// BenchmarkPlainForecast makes the forecasts of all engines from nothing, which a
// decision would do without sums that are kept.
func BenchmarkPlainForecast(b *testing.B) {
	l := newLoaded(b)
	b.ResetTimer()
	begin := cpu(b)
	for range b.N {
		for i := range costEngines {
			l.s.PlainPeak(fmt.Sprint(i))
		}
	}
	b.ReportMetric(float64((cpu(b)-begin).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
}

// BenchmarkReport takes in 64 passes of an engine, which makes some shares anew.
func BenchmarkReport(b *testing.B) {
	l := newLoaded(b)
	b.ResetTimer()
	begin := cpu(b)
	for i := range b.N {
		l.handle(b, scheduler.Advance{Engine: fmt.Sprint(i % costEngines), Passes: l.passes + 64*int64(1+i/costEngines)})
	}
	b.ReportMetric(float64((cpu(b)-begin).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
}

// TestKeptForecastIsThePlainOne compares the sums that are kept with a forecast that is
// made from nothing.
func TestKeptForecastIsThePlainOne(t *testing.T) {
	f := newFleet(t, func(c *scheduler.Config) { c.Longest = 1000 })
	f.submit(several(100, "r", "p")...)
	f.do(scheduler.Join{Engine: "a", Capacity: 1 << 20})
	if kept, plain := f.s.Peak("a"), f.s.PlainPeak("a"); kept != plain || kept < 100*100 {
		t.Errorf("the kept forecast is %d tokens, a plain one %d", kept, plain)
	}
	for i := range 50 {
		f.finish(fmt.Sprintf("r/p/%d", i), 150)
	}
	f.do(scheduler.Advance{Engine: "a", Passes: 200}) // a leap makes all shares anew
	if kept, plain := f.s.Peak("a"), f.s.PlainPeak("a"); kept != plain {
		t.Errorf("after 50 ended, the kept forecast is %d tokens, a plain one %d", kept, plain)
	}
}
