package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"temper/internal/blob"
	"temper/internal/inference"
)

// Load implements inference.Loader: all members load side by side. One that fails is left out
// until it has loaded the policy. It is an error when none is left.
func (f *Fleet) Load(ctx context.Context, ref blob.Ref, version int64) error {
	if version < 0 {
		return fmt.Errorf("load policy: version %d, want 0 or more", version)
	}
	f.loading.Lock()
	defer f.loading.Unlock()
	f.mu.Lock()
	if f.state.version == version && f.state.target.version == version {
		f.mu.Unlock()
		return nil
	}
	want := target{ref: ref, version: version}
	f.state.target, f.state.swapping = want, true
	members := slices.Clone(f.state.members)
	f.mu.Unlock()

	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = m.replace(ctx, want) })
	}
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.swapping = false
	for _, m := range f.state.members { // those that joined meanwhile
		m.askNow()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(members) == 0 || !slices.Contains(errs, nil) {
		return fmt.Errorf("load policy version %d: none of the fleet's %d members holds it: %w", version, len(members), errors.Join(errs...))
	}
	f.state.version = version
	return nil
}

// Prefetch implements inference.Prefetcher: all members that can read the policy ahead.
func (f *Fleet) Prefetch(ctx context.Context, ref blob.Ref, version int64) {
	f.mu.Lock()
	members := slices.Clone(f.state.members)
	f.mu.Unlock()
	for _, m := range members {
		if reader, ok := m.engine.(inference.Prefetcher); ok {
			reader.Prefetch(ctx, ref, version)
		}
	}
}

// replace makes a member serve a policy, or leaves it out.
func (m *member) replace(ctx context.Context, want target) error {
	select {
	case m.talk <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("member %q: %w", m.name, ctx.Err())
	case <-m.ctx.Done():
		return fmt.Errorf("member %q: it has left", m.name)
	}
	defer func() { <-m.talk }()
	st, err := m.ask(ctx) // one that does not answer is not waited for as long as a load may take
	if err == nil {
		st, err = m.load(ctx, want)
	}
	if err == nil && st.Draining {
		err = errors.New("it drains")
	}
	if err != nil {
		err = fmt.Errorf("member %q: %w", m.name, err)
		m.fleet.cfg.Log.Warn("member of the fleet does not load the policy", "member", m.name, "policy_version", want.version, "err", err)
		m.fleet.mu.Lock()
		defer m.fleet.mu.Unlock()
		m.fleet.state.leaveOut(m, err.Error())
		return err
	}
	m.fleet.mu.Lock()
	if m.serves {
		err = m.advance(st)
	}
	m.fleet.mu.Unlock()
	if err != nil {
		return fmt.Errorf("member %q: %w", m.name, err)
	}
	m.admit(st, want)
	return nil
}

// load loads a policy into the member and returns its status, which must name the version.
func (m *member) load(ctx context.Context, want target) (inference.Status, error) {
	loading, cancel := context.WithTimeout(ctx, m.fleet.cfg.LoadPatience)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)() //nolint:contextcheck // a member that has left ends the load
	if err := m.engine.Load(loading, want.ref, want.version); err != nil {
		return inference.Status{}, err
	}
	st, err := m.ask(ctx)
	if err == nil && st.Version != want.version {
		err = fmt.Errorf("it serves version %d after it has loaded %d", st.Version, want.version)
	}
	return st, err
}
