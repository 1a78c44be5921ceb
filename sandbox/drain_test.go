package sandbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
)

func TestDrainCutsWhatIsNotDoneInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		want  error
		after time.Duration
	}{
		{"nothing under way", 0, nil, 0},
		{"done in time", time.Second, nil, time.Second},
		{"cut", time.Hour, context.DeadlineExceeded, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				life, cut := context.WithCancel(t.Context())
				var work sync.WaitGroup
				ended := false
				work.Go(func() {
					select {
					case <-time.After(c.takes):
					case <-life.Done():
					}
					ended = true
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := sandbox.Drain(ctx, &work, cut)
				if !errors.Is(err, c.want) || time.Since(start) != c.after || !ended || life.Err() == nil {
					t.Errorf("got error %v after %v, ended %v, cut %v", err, time.Since(start), ended, life.Err())
				}
			})
		})
	}
}
