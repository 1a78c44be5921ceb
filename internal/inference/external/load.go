package external

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
)

// Load implements inference.Loader: it writes the policy into the folder, waits for the
// requests under way, makes each server read the folder, and asks each for the proof.
// After an error nothing is served until a Load succeeds.
func (e *Engine) Load(ctx context.Context, ref blob.Ref, version int64) error {
	if err := e.loads.lock(ctx); err != nil {
		return err
	}
	defer e.loads.unlock()
	e.mu.Lock()
	before := e.current
	e.mu.Unlock()
	now := heldPolicy{ref: ref, version: version, label: labelOf(ref, version)}
	if before == now {
		return nil
	}
	p, err := e.publish(ctx, now)
	if err != nil {
		return fmt.Errorf("engine %s: write policy %d: %w", e.cfg.Kind, version, err)
	}
	err = e.drain(ctx)
	if err == nil {
		err = e.changes.lock(ctx)
	}
	if err != nil {
		e.open(before)
		return err
	}
	defer e.changes.unlock()
	if err := e.replace(ctx, now, p); err != nil {
		e.open(heldPolicy{version: -1})
		return fmt.Errorf("engine %s: load policy %d: %w", e.cfg.Kind, version, err)
	}
	e.open(now)
	for _, s := range e.replicas {
		if s.unproven.Load() {
			e.repairLater(s) //nolint:contextcheck // the repair continues after the load
		}
	}
	if before.version >= 0 {
		removePolicy(e.cfg, before)
	}
	return nil
}

// labelOf names a policy so that no two of different content share a name.
func labelOf(ref blob.Ref, version int64) string {
	return fmt.Sprintf("policy-%06d-%.12s", version, ref.SHA256)
}

// mutex is a lock that a context can stop waiting for.
type mutex chan struct{}

func (m mutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m mutex) unlock() { <-m }

// publish writes a policy into the folder, unless it is there.
func (e *Engine) publish(ctx context.Context, now heldPolicy) (published, error) {
	p := published{name: now.label, dir: filepath.Join(e.cfg.Folder, now.label)}
	if _, err := os.Stat(filepath.Join(p.dir, "config.json")); errors.Is(err, os.ErrNotExist) {
		if err := os.RemoveAll(p.dir); err != nil {
			return p, err
		}
		// Another rollout worker may have written it meanwhile: a directory is whole.
		if err := e.cfg.Publisher.Write(ctx, now.ref, p.dir); err != nil && !errors.Is(err, os.ErrExist) {
			return p, err
		}
	} else if err != nil {
		return p, err
	}
	if e.replicas[0].server.needsFile() {
		p.file = filepath.Join(e.cfg.Folder, now.label+".gguf")
		if _, err := os.Stat(p.file); errors.Is(err, os.ErrNotExist) {
			if err := e.cfg.Publisher.Convert(ctx, p.dir, p.file); err != nil {
				return p, err
			}
		} else if err != nil {
			return p, err
		}
	}
	return p, nil
}

// removePolicy removes a policy that no server holds any more. A policy that cannot be removed costs
// space and nothing else.
func removePolicy(c Config, old heldPolicy) {
	dir := filepath.Join(c.Folder, old.label)
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".gguf")); err != nil {
		c.Log.Warn("policy stays in the folder of the engine", "dir", dir, "err", err)
	}
}

// replace makes all servers hold a policy. A server that is away while others
// answer is left to its repair; one that refuses, or that computes something else, is an
// error.
func (e *Engine) replace(ctx context.Context, now heldPolicy, p published) error {
	errs := make([]error, len(e.replicas))
	anyProven := slices.ContainsFunc(e.replicas, func(s *replica) bool { return !s.unproven.Load() })
	var wg sync.WaitGroup
	for i, s := range e.replicas {
		patience := e.cfg.Patience
		if s.unproven.Load() && anyProven {
			patience = 0
		}
		wg.Go(func() { errs[i] = e.install(ctx, s, now, p, patience) })
	}
	wg.Wait()
	err, lost := errors.Join(errs...), 0
	for i, replicaErr := range errs {
		if errors.Is(replicaErr, errLost) || errors.Is(replicaErr, errBusy) {
			e.cfg.Log.Warn("engine server is away", "server", e.replicas[i].server.address(), "policy_version", now.version, "err", replicaErr)
			lost++
		}
	}
	if ctx.Err() == nil && lost < len(e.replicas) && !errors.Is(err, errRefused) && lost == countErrors(errs) {
		return nil
	}
	return err
}

func countErrors(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// install makes one server hold a policy and prove it. It waits for a server that
// starts just now.
func (e *Engine) install(ctx context.Context, s *replica, now heldPolicy, p published, patience time.Duration) error {
	s.unproven.Store(true)
	deadline := time.Now().Add(patience)
	for {
		err := e.tryInstall(ctx, s, now, p)
		switch {
		case err == nil:
			s.proofs.Add(1)
			s.unproven.Store(false)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errLost) && !errors.Is(err, errBusy) || time.Now().After(deadline):
			return err
		}
		if err := sleep(ctx, installPause); err != nil {
			return err
		}
	}
}

// installPause is the time between two attempts to reach a server.
const installPause = 200 * time.Millisecond

func (e *Engine) tryInstall(ctx context.Context, s *replica, now heldPolicy, p published) error {
	if err := s.server.load(ctx, p); err != nil {
		if _, statErr := os.Stat(p.dir); statErr != nil {
			return fmt.Errorf("%s: the folder %s is gone: %w", s.server.address(), p.dir, err)
		}
		return err
	}
	if err := checkLimits(ctx, s, e.cfg.MaxContext); err != nil {
		return err
	}
	return prover{e.cfg}.prove(ctx, s, now, p)
}

// checkLimits refuses a server that cannot hold the model's context.
func checkLimits(ctx context.Context, s *replica, maxContext int) error {
	l, err := s.server.limits(ctx)
	if err != nil {
		return err
	}
	if l.maxContext > 0 && l.maxContext < maxContext {
		return fmt.Errorf("%s: its context is %d tokens, model.max_context is %d (%w)", s.server.address(), l.maxContext, maxContext, errRefused)
	}
	return nil
}

// repair makes one attempt to bring a server back that was lost: it must hold the
// policy that is served, and prove it again. Requests that meet one lost server repair
// it once.
func (e *Engine) repair(ctx context.Context, s *replica) error {
	if err := e.changes.lock(ctx); err != nil {
		return err
	}
	defer e.changes.unlock()
	e.mu.Lock()
	now := e.current
	e.mu.Unlock()
	switch {
	case !s.unproven.Load():
		return nil
	case now.version < 0:
		return fmt.Errorf("engine %s holds no policy: %w", e.cfg.Kind, inference.ErrStaleVersion)
	}
	p, err := e.publish(ctx, now) // the folder may have gone with the server
	if err != nil {
		return fmt.Errorf("engine %s: write policy %d: %w", e.cfg.Kind, now.version, err)
	}
	if err := e.install(ctx, s, now, p, 0); err != nil {
		return fmt.Errorf("engine %s: repair: %w", e.cfg.Kind, err)
	}
	e.cfg.Log.Info("engine server is back", "server", s.server.address(), "policy_version", now.version)
	return nil
}

// repairLater brings a server back beside the requests, which go to the others
// meanwhile. With one server, the requests themselves repair it.
func (e *Engine) repairLater(s *replica) {
	if len(e.replicas) == 1 || !s.repairing.CompareAndSwap(false, true) {
		return
	}
	e.repairs.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // ends with this repair
			select {
			case <-e.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		e.keepRepairing(ctx, s)
		s.repairing.Store(false)
		if ctx.Err() == nil && s.unproven.Load() && e.Version() >= 0 {
			e.repairLater(s) // it was lost again, or a policy loaded, before others could see that this repair has ended
		}
	})
}

// keepRepairing returns when a server is back, or there is no policy that it could hold.
func (e *Engine) keepRepairing(ctx context.Context, s *replica) {
	for pause := installPause; ; pause = min(2*pause, maxRepairPause) {
		err := e.repair(ctx, s)
		if err == nil || ctx.Err() != nil || errors.Is(err, inference.ErrStaleVersion) {
			return
		}
		e.cfg.Log.Warn("engine server is not back", "server", s.server.address(), "err", err)
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// maxRepairPause bounds the time between two attempts to bring a server back.
const maxRepairPause = 10 * time.Second
