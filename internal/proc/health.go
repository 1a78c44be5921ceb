package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Paths of the two answers.
const (
	PathAlive = "/healthz"
	PathReady = "/readyz"
)

const (
	// probeTimeout bounds one look at everything that a process needs.
	probeTimeout = 3 * time.Second
	// checkAge is how old an answer about these things may be: several askers must
	// not multiply the questions.
	checkAge = time.Second
)

// Health is the state that a process reports. It is safe for concurrent use.
type Health struct {
	name    string
	started time.Time

	mu       sync.Mutex
	pending  map[string]bool // parts that do not serve yet
	served   chan struct{}   // closed when there are none
	draining bool
	needs    map[string]func(context.Context) error

	asking sync.Mutex // one look at the needs at a time
	asked  time.Time
	found  map[string]error
}

// NewHealth describes a process that is ready once it serves each of the parts.
func NewHealth(name string, parts ...string) *Health {
	s := &Health{
		name: name, started: time.Now(), pending: map[string]bool{}, served: make(chan struct{}),
		needs: map[string]func(context.Context) error{},
	}
	for _, p := range parts {
		s.pending[p] = true
	}
	if len(parts) == 0 {
		close(s.served)
	}
	return s
}

// Serving reports that a part of the process serves from now on.
func (s *Health) Serving(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending[part] {
		return
	}
	delete(s.pending, part)
	if len(s.pending) == 0 {
		close(s.served)
	}
}

// Served is closed once all parts serve.
func (s *Health) Served() <-chan struct{} { return s.served }

// Drain reports that the process takes no new work, because it is about to end.
func (s *Health) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Need adds something without which the process is of no use. The check must
// return when its context ends.
func (s *Health) Need(name string, check func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs[name] = check
}

// Ready returns an error when the process cannot be used now: it does not serve yet or no
// longer, or it lacks something that it needs.
func (s *Health) Ready(ctx context.Context) error {
	s.mu.Lock()
	pending, draining := slices.Sorted(maps.Keys(s.pending)), s.draining
	s.mu.Unlock()
	switch {
	case draining:
		return errors.New("is draining")
	case len(pending) > 0:
		return fmt.Errorf("does not serve %s yet", strings.Join(pending, ", "))
	}
	var errs []error
	found := s.lookAtNeeds(ctx)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := found[name]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// lookAtNeeds checks all needs side by side, unless that was done just now.
func (s *Health) lookAtNeeds(ctx context.Context) map[string]error {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.found != nil && time.Since(s.asked) < checkAge {
		return s.found
	}
	s.mu.Lock()
	needs := maps.Clone(s.needs)
	s.mu.Unlock()
	// The answer is for everybody who asks, also when this one has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	var mu sync.Mutex
	found := map[string]error{}
	var checks sync.WaitGroup
	for name, check := range needs {
		checks.Go(func() {
			err := check(ctx)
			mu.Lock()
			defer mu.Unlock()
			found[name] = err
		})
	}
	checks.Wait()
	s.asked, s.found = time.Now(), found
	return found
}
