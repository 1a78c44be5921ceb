package activities_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/run"
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
	*chain
	takeover func()
}

func (o *overtaken) ResetOptimizer() error {
	o.takeover()
	return o.chain.ResetOptimizer()
}

// TestFencedTrainerWritesNothing: of two trainers on one run the older, whose
// update was under way when the other took over, stores nothing any more, and
// the run ends as one that only the other trained.
func TestFencedTrainerWritesNothing(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2)
	script := h.script(t, 1, 2)
	calm := fill(t, dump(t, h.store))
	play(t, calm, &fate{}, false, script)
	want := durable(t, calm)

	book := &ledger{Store: h.store}
	before := 0
	older := &activities.Trainer{Learner: learner.NewService(learner.Config{Store: book, Now: still, Background: func(task func()) { task() },
		New: func(r *run.Loaded) (learner.Learner, error) {
			return &overtaken{chain: &chain{fate: &fate{}, model: r.Model}, takeover: func() {
				play(t, h.store, &fate{}, false, script[3:])
				before = len(book.writes)
			}}, nil
		}})}
	for _, activity := range script[:3] {
		if err := activity(&machine{Trainer: older}); err != nil {
			t.Fatal(err)
		}
	}
	err := script[3](&machine{Trainer: older})
	if !errors.Is(err, checkpoint.ErrFenced) || !strings.Contains(err.Error(), "epoch 2") {
		t.Errorf("error %v, want ErrFenced naming the epoch that took over", err)
	}
	if diff := cmp.Diff(book.writes[before:], []string{}); diff != "" || before == 0 {
		t.Errorf("written after the takeover: got -, want +\n%s", diff)
	}
	if diff := cmp.Diff(durable(t, h.store), want); diff != "" {
		t.Errorf("got -, want as one trainer leaves it +\n%s", diff)
	}
}
