package fleet_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/internal/inference"
	"temper/internal/inference/fleet"
	"temper/internal/rl"
)

// injector breaks a fleet in every way, by a seed.
type injector struct {
	*testing.T
	f       *fleet.Fleet
	engines map[string]*fake
	names   []string
	draws   int
	count   map[string]int
}

func (in *injector) pick(n int) int {
	in.draws++
	return int(rl.Uniform(11, in.draws) * float32(n))
}

func (in *injector) join() {
	name := fmt.Sprint("e", len(in.engines))
	e := newFake(int64(1500 + 1000*in.pick(4)))
	in.engines[name], in.names = e, append(in.names, name)
	if err := in.f.Join(fleet.Member{Name: name, Engine: e}); err != nil {
		in.Error(err)
	}
}

// inject breaks something, and mends something that was broken before.
func (in *injector) inject() {
	name := in.names[in.pick(len(in.names))]
	e := in.engines[name]
	kinds := []string{"die", "revive", "join", "leave", "drain", "lie", "truth", "delay", "garbage", "cut", "overload", "twice"}
	kind := kinds[in.pick(len(kinds))]
	in.count[kind]++
	switch kind {
	case "die":
		e.die()
	case "revive":
		e.revive()
	case "join":
		if len(in.names) < 8 {
			in.join()
		}
	case "leave", "drain":
		if len(in.names) < 4 {
			return
		}
		for i, n := range in.names {
			if n == name {
				in.names = append(in.names[:i:i], in.names[i+1:]...)
				break
			}
		}
		if kind == "leave" {
			if err := in.f.Leave(name); err != nil {
				in.Error(err)
			}
		} else if err := in.f.Drain(in.Context(), name); err != nil {
			in.Error(err)
		}
	case "lie":
		lies := []func(*inference.Status){
			func(s *inference.Status) { s.Capacity = 0 }, func(s *inference.Status) { s.Version = 99 },
			func(s *inference.Status) { s.Tokens = math.MaxInt64 }, func(s *inference.Status) { s.Used = math.MaxInt64 },
			func(s *inference.Status) { s.Passes = -1 }, func(s *inference.Status) { s.Draining = true }, func(s *inference.Status) { s.Capacity = 1 << 62 },
		}
		e.set(func(e *fake) { e.lie = lies[in.pick(len(lies))] })
	case "truth":
		e.set(func(e *fake) { e.lie = nil })
	case "delay":
		e.set(func(e *fake) { e.pace = time.Duration(1+in.pick(20)) * time.Millisecond })
	case "garbage":
		e.set(func(e *fake) {
			e.spoil = func(g *inference.Generation) error {
				if len(g.Logprobs) > 0 {
					g.Logprobs[len(g.Logprobs)-1] = float32(math.NaN())
				}
				g.Version++
				return nil
			}
		})
	case "cut":
		e.set(func(e *fake) {
			e.spoil = func(g *inference.Generation) error {
				n := len(g.Tokens) / 2
				g.Tokens, g.Logprobs, g.Finish = g.Tokens[:n], g.Logprobs[:n], rl.FinishAbort
				return nil
			}
		})
	case "overload":
		e.set(func(e *fake) { e.spoil = func(*inference.Generation) error { return inference.ErrOverloaded } })
	case "twice":
		if err := in.f.Join(fleet.Member{Name: name, Engine: newFake(1)}); !errors.Is(err, fleet.ErrDuplicate) {
			in.Errorf("error %v for a second %s", err, name)
		}
	}
}

// TestAThousandFaults: while members die, join, lie, drain and answer garbage, each
// trajectory ends once, with the bits of an engine that nobody disturbs.
func TestAThousandFaults(t *testing.T) {
	const faults = 1000
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(4000))
		in := &injector{T: t, f: f, engines: map[string]*fake{}, count: map[string]int{}}
		for range 5 {
			in.join()
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(done)
			for range faults {
				in.inject()
				time.Sleep(time.Duration(5+in.pick(60)) * time.Millisecond)
			}
			for _, name := range in.names { // the end must not depend on m0 alone
				in.engines[name].revive()
				in.engines[name].set(func(e *fake) { e.lie, e.pace = nil, time.Millisecond })
			}
		})
		ended := 0
		var mu sync.Mutex
		for wave := 0; ; wave++ {
			select {
			case <-done:
			default:
				ws := playAll(t, f, fmt.Sprint("w", wave, "/"), 64)
				ws.Wait()
				mu.Lock()
				ended += 64
				mu.Unlock()
				continue
			}
			break
		}
		wg.Wait()
		st := f.Stats()
		if st.Finished+st.Cancelled < int64(ended) || ended < 500 {
			t.Errorf("%d trajectories ended, %+v", ended, st)
		}
		t.Logf("%d trajectories, faults %v, %+v", ended, in.count, st)
	})
}
