package hosts_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/google/go-cmp/cmp"

	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/hosts"
	"temper/trainer/loss"
	"temper/trainer/model"
)

// rogue lets a host join that does what it is told.
func (s *site) rogue(do func(question string) hosts.Answer) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.where) //nolint:noctx // a test
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = hosts.Rogue{Identity: identity("rogue"), Patience: patience, Do: do}.Serve(ctx, c) // it is let go
	}()
	s.t.Cleanup(func() { cancel(); <-over })
	s.hosts(1)
}

// learn makes supervised updates of many microbatches until done says so, and returns how
// many it made, and the state.
func learn(t *testing.T, cfg trainer.Config, done func(updates int) bool) (updates int, state checkpoint.State) {
	t.Helper()
	tr, err := trainer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	for s := samples(40, 48, 3); ; {
		updates++
		if _, err := tr.SFTStep(t.Context(), s, adam(), trainer.Position{Step: updates}); err != nil {
			t.Fatal(err)
		}
		if done(updates) {
			break
		}
	}
	if state, err = tr.Snapshot(checkpoint.State{}); err != nil {
		t.Fatal(err)
	}
	return updates, state
}

// misled trains with a rogue until that was asked for a pass, and holds the state against
// that of one process.
func misled(t *testing.T, do func(question string) hosts.Answer) (log string) {
	t.Helper()
	s := newSiteOf(t, hosts.Config{Overdue: 100 * time.Millisecond})
	s.rogue(do)
	cfg := smallConfig()
	cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
	updates, got := learn(t, cfg, func(updates int) bool { return s.hub.Counts().Lost > 0 || updates == 100 })
	if _, want := learn(t, smallConfig(), func(n int) bool { return n == updates }); !cmp.Equal(got, want) {
		t.Error("the state has other bits than that of one process")
	}
	s.await("the host gone", func(c hosts.Counts) bool { return c.Lost == 1 && c.Hosts == 0 && c.Passes == 0 })
	return s.log.String()
}

// TestMembersThatHang: a host that beats and never answers is let go, and an update has
// the bits of one process.
func TestMembersThatHang(t *testing.T) {
	for _, silent := range []string{"setup", "weights", "pass"} {
		t.Run(silent, func(t *testing.T) {
			log := misled(t, func(question string) hosts.Answer {
				if question == silent {
					return hosts.Answer{}
				}
				return hosts.Ready()
			})
			if want := "no answer to " + silent; !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		})
	}
}

// TestCancelWhileMembersHang: a call that is cancelled waits for no host.
func TestCancelWhileMembersHang(t *testing.T) {
	for _, silent := range []string{"setup", "weights", "pass"} {
		t.Run(silent, func(t *testing.T) {
			s := newSite(t, "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var asked atomic.Bool
			s.rogue(func(question string) hosts.Answer {
				if question != silent {
					return hosts.Ready()
				}
				asked.Store(true)
				time.AfterFunc(50*time.Millisecond, cancel)
				return hosts.Answer{}
			})
			cfg := smallConfig()
			cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
			tr, err := trainer.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Init(1); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				defer tr.Close()
				for step := 1; ; step++ {
					_, err := tr.SFTStep(ctx, samples(40, 48, 3), adam(), trainer.Position{Step: step})
					if err != nil || asked.Load() && ctx.Err() != nil {
						ended <- err
						return
					}
				}
			}()
			select {
			case err := <-ended:
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the call did not end")
			}
		})
	}
}

// TestResultsOfAnotherForm: a host whose answer to a pass is not what the pass yields is
// let go, and an update has the bits of one process.
func TestResultsOfAnotherForm(t *testing.T) {
	cfg := smallConfig().Model
	gradients := func(measures int, of func(spec model.TensorSpec) *tensors.Tensor) (out []*tensors.Tensor) {
		out = append(out, tensors.FromValue(make([]float32, measures)))
		for _, spec := range cfg.Tensors() {
			out = append(out, of(spec))
		}
		return out
	}
	zeros := func(spec model.TensorSpec) *tensors.Tensor {
		return tensors.FromShape(shapes.Make(dtypes.Float32, spec.Shape...))
	}
	num := int(loss.NumMeasures)
	for name, answer := range map[string]hosts.Answer{
		"ready":          hosts.Ready(),
		"nothing":        hosts.Result(),
		"measures alone": hosts.Result(gradients(num, zeros)[:1]...),
		"one too many":   hosts.Result(append(gradients(num, zeros), tensors.FromValue([]float32{1}))...),
		"other measures": hosts.Result(gradients(num-1, zeros)...),
		"single numbers": hosts.Result(gradients(num, func(model.TensorSpec) *tensors.Tensor { return tensors.FromValue(float32(0.5)) })...),
		"another type": hosts.Result(gradients(num, func(spec model.TensorSpec) *tensors.Tensor {
			return tensors.FromShape(shapes.Make(dtypes.Int32, spec.Shape...))
		})...),
		"one of one value": hosts.Result(append(gradients(num, zeros)[:len(cfg.Tensors())], tensors.FromValue([]float32{1}))...),
	} {
		t.Run(name, func(t *testing.T) {
			log := misled(t, func(question string) hosts.Answer {
				if question == "pass" {
					return answer
				}
				return hosts.Ready()
			})
			if want := "host fails"; !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		})
	}
}
