package learner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/trainer/checkpoint"
)

// ledger records which keys a trainer changes.
type ledger struct {
	blob.Store
	writes []string
}

func (l *ledger) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	ref, err := l.Store.Put(ctx, key, r, cond)
	if err == nil {
		l.writes = append(l.writes, key)
	}
	return ref, err
}

func (l *ledger) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	ref, err := l.Store.Swap(ctx, key, old, data)
	if err == nil {
		l.writes = append(l.writes, key)
	}
	return ref, err
}

// overtaken is a learner during whose update another trainer takes the run over.
type overtaken struct {
	*runtest.Chain
	takeover func()
}

func (o *overtaken) ResetOptimizer() error {
	o.takeover()
	return o.Chain.ResetOptimizer()
}

// TestFencedTrainerWritesNothing: of two trainers on one run the older, whose
// update was under way when the other took over, stores nothing any more, and
// the run ends as one that only the other trained.
func TestFencedTrainerWritesNothing(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2)
	script := h.Script(t, 1, 2)
	calm := runtest.Fill(t, runtest.Dump(t, h.Store))
	runtest.Play(t, calm, &runtest.Fate{}, false, script)
	want := runtest.Durable(t, calm)

	book := &ledger{Store: h.Store}
	before := 0
	older := learner.NewService(learner.Config{Store: book, Now: runtest.Still, Background: func(task func()) { task() },
		New: func(r *run.Loaded) (learner.Learner, error) {
			return &overtaken{Chain: &runtest.Chain{Fate: &runtest.Fate{}, Model: r.Model}, takeover: func() {
				runtest.Play(t, h.Store, &runtest.Fate{}, false, script[3:])
				before = len(book.writes)
			}}, nil
		}})
	for _, activity := range script[:3] {
		if err := activity(&runtest.Machine{Service: older}); err != nil {
			t.Fatal(err)
		}
	}
	err := script[3](&runtest.Machine{Service: older})
	if !errors.Is(err, checkpoint.ErrFenced) || !strings.Contains(err.Error(), "epoch 2") {
		t.Errorf("error %v, want ErrFenced naming the epoch that took over", err)
	}
	if diff := cmp.Diff(book.writes[before:], []string{}); diff != "" || before == 0 {
		t.Errorf("written after the takeover: got -, want +\n%s", diff)
	}
	if diff := cmp.Diff(runtest.Durable(t, h.Store), want); diff != "" {
		t.Errorf("got -, want as one trainer leaves it +\n%s", diff)
	}
}

// unsteady is a store whose swaps fail while it is away.
type unsteady struct {
	blob.Store
	away bool
}

func (u *unsteady) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if u.away {
		return blob.Ref{}, blob.ErrUnavailable
	}
	return u.Store.Swap(ctx, key, old, data)
}

// TestLeaseIsTakenBackLater: the store fails in the moment in which a trainer takes back a
// run that another one had meanwhile. The next attempt goes on.
func TestLeaseIsTakenBackLater(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2)
	script := h.Script(t, 1, 2)
	calm := runtest.Fill(t, runtest.Dump(t, h.Store))
	runtest.Play(t, calm, &runtest.Fate{}, false, script)

	m := runtest.Boot(h.Store, &runtest.Fate{})
	store := &unsteady{Store: h.Store}
	m.Store = store
	runtest.CarryOut(t, m, script[:3])
	runtest.CarryOut(t, runtest.Boot(h.Store, &runtest.Fate{}), script[3:4]) // another trainer makes step 1
	store.away = true
	if err := script[4](m); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	store.away = false
	runtest.CarryOut(t, m, script[4:])
	if diff := cmp.Diff(runtest.Durable(t, h.Store), runtest.Durable(t, calm)); diff != "" {
		t.Errorf("got -, want as one trainer leaves it +\n%s", diff)
	}
}
