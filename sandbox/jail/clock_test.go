package jail

import (
	"testing"
	"time"

	"temper/sandbox"
)

// moment is a program at a check of its clock.
type moment struct {
	passed, cpu time.Duration
	now         threadStats
	why         stop
	next        time.Duration
}

func TestClockCountsWhatAProgramCouldUse(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	waits := func(of ...time.Duration) map[int]schedTimes {
		m := map[int]schedTimes{}
		for i, d := range of {
			m[i+1] = schedTimes{waited: d}
		}
		return m
	}
	asleep := func(of ...time.Duration) threadStats { return threadStats{threads: waits(of...)} }
	waiting := func(of ...time.Duration) threadStats { return threadStats{threads: waits(of...), waiting: true} }
	entering := asleep(s / 2)
	entering.entering = true
	late := asleep(0)
	late.begun = s / 4
	answered := asleep(0)
	answered.answered = true
	dead := threadStats{threads: waits(), ended: true}
	const step = s / looksPerLimit
	for _, c := range []struct {
		name    string
		moments []moment
	}{
		{"a sleeper", []moment{{s, ms, asleep(0), stoppedByWall, 0}}},
		{"one that computes", []moment{{s / 2, s / 2, asleep(0), notStopped, s / 2}, {s, s, asleep(0), stoppedByWall, 0}}},
		{"one that waited and then sleeps", []moment{
			{s, 0, asleep(4 * ms), notStopped, 4 * ms},
			{s + 4*ms, 0, asleep(4 * ms), stoppedByWall, 0},
		}},
		{"one in a wait that is not counted yet", []moment{
			{s, ms, waiting(0), notStopped, lookAgain},
			{s + lookAgain, ms, waiting(0), notStopped, lookAgain},
			{s + 2*lookAgain, 2 * ms, asleep(s), notStopped, step},
			{s + 2*lookAgain + s, 2 * ms, asleep(s), stoppedByWall, 0},
		}},
		{"one whose long wait has ended and that is in the next", []moment{
			{s, ms, waiting(0), notStopped, lookAgain},
			{2 * s, 2 * ms, waiting(s / 10), notStopped, step},
			{3 * s, 2 * ms, waiting(s / 10), notStopped, step},
			{4*s + s/2, 2 * ms, asleep(s / 10), stoppedByWall, 0},
		}},
		{"one that computes and is in a short wait", []moment{
			{s, s / 2, waiting(0), notStopped, lookAgain},
			{s + lookAgain, s/2 + 4*ms, waiting(0), stoppedByWall, 0},
		}},
		{"one that is never given a core", []moment{
			{s, 0, waiting(0), notStopped, lookAgain},
			{11*s - ms, 0, waiting(0), notStopped, ms},
			{11 * s, 0, waiting(0), stoppedByStarvation, 0},
		}},
		{"one that gets a tenth of a core", []moment{
			{s, s / 10, waiting(9 * s / 10), notStopped, step},
			{11 * s, s * 9 / 10, waiting(10*s + s/10), stoppedByStarvation, 0},
		}},
		{"processor time is over before the bound", []moment{
			{s, s / 2, waiting(s), notStopped, step},
			{2 * s, 5 * s, waiting(2 * s), stoppedByCPU, 0},
		}},
		{"one that has used its wall limit and waits", []moment{{s, s, waiting(0), stoppedByWall, 0}}},
		{"one that has used its wall limit late", []moment{
			{s, s / 2, waiting(s), notStopped, step},
			{2 * s, s, waiting(2 * s), stoppedByWall, 0},
		}},
		{"threads that wait for each other alone", []moment{
			{s, 2 * s, asleep(s*9/10, s*9/10, s*9/10), stoppedByWall, 0},
		}},
		{"threads that wait for a core one after the other", []moment{
			{s, s / 10, asleep(s, 2*s), notStopped, step},
			{3*s + 3*s/10, s / 10, asleep(s, 2*s), notStopped, step}, // each wait without the 0.1 s of the other
			{3*s + 8*s/10, s / 10, asleep(s, 2*s), stoppedByWall, 0},
		}},
		{"a thread that waited and has ended", []moment{
			{s, ms, waiting(0, s), notStopped, step},
			{2 * s, 2 * ms, waiting(0, s), notStopped, step},
			{3 * s, 3 * ms, waiting(0), notStopped, step},
			{4 * s, 3 * ms, asleep(0), stoppedByWall, 0},
		}},
		{"waits of threads that sleep together", []moment{
			{s, ms, asleep(s/2, s/2, s/2), notStopped, step},
			{11 * s, 2 * ms, asleep(4*s, 4*s, 4*s), stoppedByWall, 0},
		}},
		{"short waits of threads for each other are not added up", []moment{
			{s, s / 2, asleep(s/50, s/50, s/50, s/50), notStopped, s / 50},
			{s + s/50, s / 2, asleep(s/50, s/50, s/50, s/50), stoppedByWall, 0},
		}},
		{"one whose layers were late", []moment{{s, ms, entering, notStopped, s}, {2 * s, ms, asleep(s / 2), stoppedByWall, 0}}},
		{"one that began late", []moment{{s, ms, late, notStopped, step}, {s + s/4, ms, late, stoppedByWall, 0}}},
		{"one that has ended unseen", []moment{{s, ms, dead, notStopped, lookAgain}, {10 * s, ms, dead, notStopped, lookAgain}, {11 * s, ms, dead, stoppedByStarvation, 0}}},
		{"one that only says so", []moment{{s, ms, answered, notStopped, lookAgain}, {2 * s, ms, answered, stoppedByWall, 0}}},
		{"one that is not found", []moment{
			{s, 0, threadStats{}, notStopped, lookAgain}, {s + lookAgain, 0, threadStats{}, notStopped, lookAgain},
			{s + 2*lookAgain, 0, threadStats{}, notStopped, lookAgain}, {s + 3*lookAgain, 0, threadStats{}, stoppedByWall, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now threadStats
			clock := newTimeLimiter(sandbox.Limits{Wall: s, CPU: 5 * s}, 10*s, func() threadStats { return now })
			for i, m := range c.moments {
				now = m.now
				if why, next := clock.check(m.passed, m.cpu); why != m.why || next != m.next {
					t.Fatalf("check %d: got %v, %v, want %v, %v", i, why, next, m.why, m.next)
				}
			}
		})
	}
}

func TestClockOfACellLeavesOutEarlierWaits(t *testing.T) {
	now := threadStats{threads: map[int]schedTimes{1: {waited: time.Hour}}}
	clock := newTimeLimiter(sandbox.Limits{Wall: time.Second, CPU: time.Minute}, time.Second, func() threadStats { return now })
	clock.begin(0, now)
	now = threadStats{threads: map[int]schedTimes{1: {waited: time.Hour + 200*time.Millisecond}}}
	if why, next := clock.check(time.Second, 0); why != notStopped || next != 50*time.Millisecond {
		t.Errorf("got %v, %v", why, next)
	}
	if why, _ := clock.check(1200*time.Millisecond, 0); why != stoppedByWall {
		t.Errorf("got %v", why)
	}
}

func TestClockAllowsFourTimesALongLimit(t *testing.T) {
	if clock := newTimeLimiter(sandbox.Limits{Wall: time.Minute}, sandbox.MinSlack, nil); clock.bound != 4*time.Minute {
		t.Errorf("got %v", clock.bound)
	}
}
