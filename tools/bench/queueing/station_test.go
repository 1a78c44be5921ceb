package queueing_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"temper/tools/bench/queueing"
)

func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got/want-1) > tolerance {
		t.Errorf("%s: %g, want %g within %g %%", name, got, want, 100*tolerance)
	}
}

func TestClosedPopulations(t *testing.T) {
	s := queueing.Station{Cores: 2, Overhead: 5 * time.Millisecond}
	for n, want := range map[int]time.Duration{1: 5 * time.Millisecond, 2: 5 * time.Millisecond, 128: 320 * time.Millisecond} {
		p, err := s.Closed(n)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "response", p.Response.Seconds(), want.Seconds(), 1e-6)
	}
	// One core, demand 1, idle 1, two calls: X = 4/5 by hand.
	s = queueing.Station{Cores: 1, Overhead: time.Second, Idle: time.Second}
	p, err := s.Closed(2)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "two calls on a core and a delay", p.PerSecond, .8, 1e-9)
	// A thousand callers near the knee and far beyond it: exact at the bounds.
	s = queueing.Station{Cores: 31, Overhead: 4500 * time.Microsecond, Idle: 5 * time.Millisecond}
	if p, err = s.Closed(2048); err != nil {
		t.Fatal(err)
	}
	near(t, "far beyond the knee", p.PerSecond, 31/.0045, 1e-9)
	if p, err = s.Closed(66); err != nil {
		t.Fatal(err)
	}
	if bound := min(31/.0045, 66/.0095); p.PerSecond > bound || p.PerSecond < .85*bound {
		t.Errorf("at the knee: %g calls a second, want a little below %g", p.PerSecond, bound)
	}
	// Sleepers bound by slots: four calls, two slots, hardly any demand.
	s = queueing.Station{Cores: 8, Overhead: time.Microsecond, Idle: time.Second, Slots: 2}
	if p, err = s.Closed(4); err != nil {
		t.Fatal(err)
	}
	near(t, "two slots of a second for four callers", p.Response.Seconds(), 2, 1e-3)
}

func TestOpenStreams(t *testing.T) {
	// M/M/1: R = D/(1-rho). M/M/2: R = D/(1-rho^2). M/D/1 waits half as long.
	one := queueing.Station{Cores: 1, Overhead: 10 * time.Millisecond, Variation: 1}
	p, err := one.Open(80)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "M/M/1", p.Response.Seconds(), .050, 1e-6)
	one.Variation = 0
	if p, err = one.Open(80); err != nil {
		t.Fatal(err)
	}
	near(t, "M/D/1", p.Response.Seconds(), .030, 1e-6)
	two := queueing.Station{Cores: 2, Own: 10 * time.Millisecond, Variation: 1}
	if p, err = two.Open(160); err != nil {
		t.Fatal(err)
	}
	near(t, "M/M/2", p.Response.Seconds(), .010/(1-.64), 1e-6)
	if _, err := two.Open(200); !errors.Is(err, queueing.ErrUnstable) {
		t.Errorf("a saturated stream: %v", err)
	}
	two.Idle, two.Slots = time.Second, 8
	if _, err := two.Open(100); !errors.Is(err, queueing.ErrUnstable) {
		t.Errorf("a hundred sleepers a second in eight slots: %v", err)
	}
}

// The formula of open streams is an approximation for more than one core; a
// simulation of the same queue says how good it is.
func TestOpenStreamAgainstSimulation(t *testing.T) {
	const rate, calls = 300.0, 400000
	s := queueing.Station{Cores: 2, Overhead: 5 * time.Millisecond}
	draw := rand.New(rand.NewPCG(1, 2))
	var at, sum float64
	free := [2]float64{}
	for range calls {
		at += draw.ExpFloat64() / rate
		core := 0
		if free[1] < free[0] {
			core = 1
		}
		free[core] = max(at, free[core]) + .005
		sum += free[core] - at
	}
	p, err := s.Open(rate)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "M/D/2 at 75 %", p.Response.Seconds(), sum/calls, .05)
}

func TestCoresFor(t *testing.T) {
	s := queueing.Station{Overhead: 4500 * time.Microsecond, Cores: 1}
	closed := func(s queueing.Station) (queueing.Prediction, error) { return s.Closed(2048) }
	cores, err := s.CoresFor(300*time.Millisecond, closed)
	if err != nil || cores != 31 { // 2,048 * 4.5 ms / 0.3 s = 30.7
		t.Errorf("%d cores, %v; want 31", cores, err)
	}
	burst := func(s queueing.Station) (queueing.Prediction, error) { return s.Burst(45000) }
	if cores, err = s.CoresFor(300*time.Millisecond, burst); err != nil || cores != 338 {
		t.Errorf("%d cores, %v; want 338", cores, err)
	}
	open := func(s queueing.Station) (queueing.Prediction, error) { return s.Open(375) }
	if cores, err = s.CoresFor(300*time.Millisecond, open); err != nil || cores != 2 {
		t.Errorf("%d cores, %v; want 2", cores, err)
	}
	s.Idle = time.Second
	if _, err := s.CoresFor(300*time.Millisecond, closed); err == nil {
		t.Error("calls that sleep a second fit in 0.3 s")
	}
	if _, err := (queueing.Station{}).Closed(1); err == nil {
		t.Error("a station without cores was accepted")
	}
}
