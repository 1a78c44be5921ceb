package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/inference/fleet"
	"temper/internal/inference/lease"
	"temper/internal/inference/remote"
	"temper/internal/run"
)

// EnginesOptions say where the engines of other processes are.
type EnginesOptions struct {
	// Registry finds engines by their leases in the store.
	Registry bool
	// Addresses are engines that are always looked for.
	Addresses []string
	Client    remote.Options
}

// Used reports whether trajectories are sampled by engines of other processes.
func (o EnginesOptions) Used() bool { return o.Registry || len(o.Addresses) > 0 }

// place is where an engine is said to be.
type enginePlace struct {
	name, address string
	// holder is the process that the registry names; empty for a fixed address.
	holder   string
	draining bool
}

// members keeps the engines of a run in a group: those that can be found, answer and
// are what they should be.
type members struct {
	group  *fleet.Fleet
	run    string
	expect remote.Expect
	opts   EnginesOptions
	reader *lease.Reader
	log    *slog.Logger
	counts *memberCounts

	kernels string // of the first engine; the others must have the same
	joined  map[string]*joinedEngine
	refused map[string]string // holder, or address, of engines that are not used, by name
	silent  map[string]bool   // names of those that do not answer, which was logged
	leaving sync.WaitGroup
}

// joinedEngine is an engine in the group.
type joinedEngine struct {
	enginePlace
	engine   *remote.Engine
	identity string // the holder as the engine says
	drained  bool

	mu    sync.Mutex
	doubt error // what it answered that cannot be true
}

func (j *joinedEngine) distrust(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.doubt == nil {
		j.doubt = err
	}
}

func (j *joinedEngine) doubted() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.doubt
}

func newMembers(store blob.Store, r *run.Loaded, group *fleet.Fleet, o EnginesOptions, counts *memberCounts, log *slog.Logger) *members {
	m := &members{
		group: group, run: r.Ref.RunID, opts: o, counts: counts, log: log.With("run_id", r.Ref.RunID),
		expect: remote.Expect{Run: r.Ref.RunID, Model: modelFingerprint(r), Vocab: r.Model.VocabSize},
		joined: map[string]*joinedEngine{}, refused: map[string]string{}, silent: map[string]bool{},
	}
	if o.Registry {
		m.reader = lease.NewReader(store, m.run, time.Now, 0)
	}
	return m
}

// watch looks for engines until ctx ends, and then lets all of them go.
func (m *members) watch(ctx context.Context) {
	ticker := time.NewTicker(lease.Every)
	defer ticker.Stop()
	for {
		m.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			for name := range m.joined {
				m.remove(name, "")
			}
			m.leaving.Wait()
			return
		}
	}
}

// look compares what can be found with what is in the group.
func (m *members) look(ctx context.Context) {
	places, err := m.find(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("registry of engines is not read", "err", err)
		}
		return // which says nothing about any engine
	}
	there := map[string]bool{}
	var asked []enginePlace
	for _, p := range places {
		there[p.name] = true
		if m.wanted(ctx, p) {
			asked = append(asked, p)
		}
	}
	m.dialAll(ctx, asked)
	for name := range m.joined {
		if !there[name] {
			m.remove(name, "its lease has expired or is gone")
		}
	}
	m.counts.set(m.run, len(m.joined), len(m.refused))
}

// dialAll asks engines who they are, side by side, and admits them in their order.
func (m *members) dialAll(ctx context.Context, places []enginePlace) {
	type answer struct {
		engine *joinedEngine
		err    error
	}
	answers := make([]answer, len(places))
	var dials sync.WaitGroup
	for i, p := range places {
		dials.Go(func() { answers[i].engine, answers[i].err = m.dial(ctx, p) })
	}
	dials.Wait()
	for i, p := range places {
		m.admit(p, answers[i].engine, answers[i].err)
	}
}

// find returns where engines are said to be, each name once.
func (m *members) find(ctx context.Context) ([]enginePlace, error) {
	var out []enginePlace
	for _, address := range m.opts.Addresses {
		out = append(out, enginePlace{name: address, address: address})
	}
	if m.reader == nil {
		return out, nil
	}
	found, err := m.reader.Look(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Alive {
			out = append(out, enginePlace{name: f.Name, address: f.Address, holder: f.Holder, draining: f.Draining})
		}
	}
	return out, nil
}

// wanted reports whether an engine is to be asked who it is. It lets go one that has
// lied, drains, or is another process than the one that joined.
func (m *members) wanted(ctx context.Context, p enginePlace) bool {
	if j := m.joined[p.name]; j != nil {
		switch {
		case j.doubted() != nil:
			err := j.doubted()
			m.remove(p.name, "")
			m.refuse(p, cmp.Or(p.holder, j.identity), err)
			return false
		case p.holder != "" && p.holder != j.holder:
			m.remove(p.name, "another process has its name")
		case p.draining && !j.drained:
			j.drained = true
			m.leaving.Go(func() { _ = m.group.Drain(ctx, p.name) }) // it ends when the engine has drained, or with ctx
			return false
		default:
			return false
		}
	}
	return !p.draining && (p.holder == "" || m.refused[p.name] != p.holder)
}

// dial asks an engine who it is.
func (m *members) dial(ctx context.Context, p enginePlace) (*joinedEngine, error) {
	j := &joinedEngine{enginePlace: p}
	e, err := remote.Dial(ctx, remote.Config{Address: p.address, Options: m.opts.Client, Expect: m.expect, Doubt: j.distrust})
	if err != nil {
		return nil, err
	}
	j.engine, j.identity = e, e.Identity().Holder
	if p.holder != "" && p.holder != j.identity {
		e.Close()
		return nil, fmt.Errorf("engine %s: is %s, the registry says %s", p.address, j.identity, p.holder)
	}
	return j, nil
}

// admit lets an engine into the group, or says once why it is not used.
func (m *members) admit(p enginePlace, j *joinedEngine, err error) {
	if err == nil {
		if m.refused[p.name] == j.identity { // the same process still
			j.engine.Close()
			return
		}
		if err = m.fits(j); err != nil {
			j.engine.Close()
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, remote.ErrGarbage):
		identity := p.holder
		if j != nil {
			identity = j.identity
		}
		m.refuse(p, identity, err)
		return
	default:
		if !m.silent[p.name] {
			m.silent[p.name] = true
			m.log.Warn("engine does not answer", "engine", p.name, "address", p.address, "err", err)
		}
		return
	}
	if err := m.group.Join(fleet.Member{Name: p.name, Engine: countedLoads{j.engine, m.counts}}); err != nil {
		m.log.Warn("engine does not join", "engine", p.name, "address", p.address, "err", err)
		j.engine.Close()
		return
	}
	delete(m.silent, p.name)
	delete(m.refused, p.name)
	m.joined[p.name] = j
	m.log.Info("engine joins", "engine", p.name, "address", p.address, "holder", j.identity)
}

// fits refuses an engine whose bits would differ from those of the others, and one that
// is in the group under another name.
func (m *members) fits(j *joinedEngine) error {
	who := j.engine.Identity()
	for name, other := range m.joined {
		if other.identity == who.Holder {
			return fmt.Errorf("engine %s: %w: is the same process as %s", j.address, remote.ErrGarbage, name)
		}
	}
	if len(m.joined) == 0 {
		m.kernels = who.Kernels
	}
	if m.kernels != who.Kernels {
		return fmt.Errorf("engine %s: %w: computes with %q, the others of the run with %q", j.address, remote.ErrGarbage, who.Kernels, m.kernels)
	}
	return nil
}

// refuse leaves an engine out until another process has its name.
func (m *members) refuse(p enginePlace, holder string, err error) {
	if known, ok := m.refused[p.name]; ok && known == holder {
		return
	}
	m.refused[p.name] = holder
	m.counts.refuse("untrusted")
	m.log.Error("engine is left out", "engine", p.name, "address", p.address, "err", err)
}

// remove takes an engine out of the group.
func (m *members) remove(name, why string) {
	j := m.joined[name]
	delete(m.joined, name)
	_ = m.group.Leave(name) // one that has drained is gone already
	if why != "" {
		m.log.Warn("engine leaves", "engine", name, "address", j.address, "reason", why)
	}
	m.leaving.Go(j.engine.Close)
}
