package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/blob"
	"temper/internal/inference/fleet"
	"temper/internal/inference/lease"
	"temper/internal/inference/remote"
	"temper/internal/run"
	"temper/internal/sampling"
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
type engineAddress struct {
	name, address string
	// holder is the process that the registry names; empty for a fixed address.
	holder   string
	draining bool
}

// engineWatcher keeps the engines of a run in a fleet: the engines that can be found, answer and
// are what they should be.
type engineWatcher struct {
	group  *fleet.Fleet
	run    string
	expect remote.Expect
	opts   EnginesOptions
	reader *lease.Reader
	log    *slog.Logger
	counts *remoteCounts

	kernels string // of the first engine; the others must have the same
	joined  map[string]*joinedEngine
	refused map[string]string // holder, or address, of engines that are not used, by name
	silent  map[string]bool   // names of those that do not answer, which was logged
	leaving sync.WaitGroup
}

// joinedEngine is an engine in the group.
type joinedEngine struct {
	engineAddress
	engine   *remote.Engine
	identity string // the holder as the engine says
	drained  bool

	mu    sync.Mutex
	doubt error // what it answered that cannot be true
}

func (j *joinedEngine) noteGarbage(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.doubt == nil {
		j.doubt = err
	}
}

func (j *joinedEngine) garbage() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.doubt
}

func newEngineWatcher(store blob.Store, r *run.Loaded, group *fleet.Fleet, o EnginesOptions, counts *remoteCounts, log *slog.Logger) *engineWatcher {
	w := &engineWatcher{
		group: group, run: r.Ref.RunID, opts: o, counts: counts, log: log.With("run_id", r.Ref.RunID),
		expect: remote.Expect{Run: r.Ref.RunID, Model: modelFingerprint(r), Vocab: r.Model.VocabSize},
		joined: map[string]*joinedEngine{}, refused: map[string]string{}, silent: map[string]bool{},
	}
	if o.Registry {
		w.reader = lease.NewReader(store, w.run, time.Now, 0)
	}
	return w
}

// watch looks for engines until ctx ends, and then lets all of them go.
func (w *engineWatcher) watch(ctx context.Context) {
	ticker := time.NewTicker(lease.Every)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			for name := range w.joined {
				w.remove(name, "")
			}
			w.leaving.Wait()
			return
		}
	}
}

// look compares what can be found with what is in the group.
func (w *engineWatcher) look(ctx context.Context) {
	places, err := w.find(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("registry of engines is not read", "err", err)
		}
		return // which says nothing about any engine
	}
	there := map[string]bool{}
	var asked []engineAddress
	for _, p := range places {
		there[p.name] = true
		if w.wanted(ctx, p) {
			asked = append(asked, p)
		}
	}
	w.dialAll(ctx, asked)
	for name := range w.joined {
		if !there[name] {
			w.remove(name, "its lease has expired or is gone")
		}
	}
	w.counts.set(w.run, len(w.joined), len(w.refused))
}

// dialAll asks engines who they are, side by side, and admits them in their order.
func (w *engineWatcher) dialAll(ctx context.Context, places []engineAddress) {
	type answer struct {
		engine *joinedEngine
		err    error
	}
	answers := make([]answer, len(places))
	var dials sync.WaitGroup
	for i, p := range places {
		dials.Go(func() { answers[i].engine, answers[i].err = w.dial(ctx, p) })
	}
	dials.Wait()
	for i, p := range places {
		w.admit(p, answers[i].engine, answers[i].err)
	}
}

// find returns where engines are said to be, each name once.
func (w *engineWatcher) find(ctx context.Context) ([]engineAddress, error) {
	var out []engineAddress
	for _, address := range w.opts.Addresses {
		out = append(out, engineAddress{name: address, address: address})
	}
	if w.reader == nil {
		return out, nil
	}
	found, err := w.reader.Look(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Alive {
			out = append(out, engineAddress{name: f.Name, address: f.Address, holder: f.Holder, draining: f.Draining})
		}
	}
	return out, nil
}

// wanted reports whether an engine is to be asked who it is. It lets go one that has
// lied, drains, or is another process than the one that joined.
func (w *engineWatcher) wanted(ctx context.Context, p engineAddress) bool {
	if j := w.joined[p.name]; j != nil {
		switch {
		case j.garbage() != nil:
			err := j.garbage()
			w.remove(p.name, "")
			w.refuse(p, cmp.Or(p.holder, j.identity), err)
			return false
		case p.holder != "" && p.holder != j.holder:
			w.remove(p.name, "another process has its name")
		case p.draining && !j.drained:
			j.drained = true
			w.leaving.Go(func() { _ = w.group.Drain(ctx, p.name) }) // it ends when the engine has drained, or with ctx
			return false
		default:
			return false
		}
	}
	return !p.draining && (p.holder == "" || w.refused[p.name] != p.holder)
}

// dial asks an engine who it is.
func (w *engineWatcher) dial(ctx context.Context, p engineAddress) (*joinedEngine, error) {
	j := &joinedEngine{engineAddress: p}
	e, err := remote.Dial(ctx, remote.Config{Address: p.address, Options: w.opts.Client, Expect: w.expect, Doubt: j.noteGarbage})
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
func (w *engineWatcher) admit(p engineAddress, j *joinedEngine, err error) {
	if err == nil {
		if w.refused[p.name] == j.identity { // the same process still
			j.engine.Close()
			return
		}
		if err = w.fits(j); err != nil {
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
		w.refuse(p, identity, err)
		return
	default:
		if !w.silent[p.name] {
			w.silent[p.name] = true
			w.log.Warn("engine does not answer", "engine", p.name, "address", p.address, "err", err)
		}
		return
	}
	if err := w.group.Join(fleet.Member{Name: p.name, Engine: countedLoads{j.engine, w.counts}}); err != nil {
		w.log.Warn("engine does not join", "engine", p.name, "address", p.address, "err", err)
		j.engine.Close()
		return
	}
	delete(w.silent, p.name)
	delete(w.refused, p.name)
	w.joined[p.name] = j
	w.log.Info("engine joins", "engine", p.name, "address", p.address, "holder", j.identity)
}

// fits refuses an engine whose bits would differ from the bits of the others, and one that
// is in the group under another name.
func (w *engineWatcher) fits(j *joinedEngine) error {
	who := j.engine.Identity()
	for name, other := range w.joined {
		if other.identity == who.Holder {
			return fmt.Errorf("engine %s: %w: is the same process as %s", j.address, remote.ErrGarbage, name)
		}
	}
	if len(w.joined) == 0 {
		w.kernels = who.Kernels
	}
	if w.kernels != who.Kernels {
		return fmt.Errorf("engine %s: %w: computes with %q, the others of the run with %q", j.address, remote.ErrGarbage, who.Kernels, w.kernels)
	}
	return nil
}

// refuse leaves an engine out until another process has its name.
func (w *engineWatcher) refuse(p engineAddress, holder string, err error) {
	if known, ok := w.refused[p.name]; ok && known == holder {
		return
	}
	w.refused[p.name] = holder
	w.counts.refuse("untrusted")
	w.log.Error("engine is left out", "engine", p.name, "address", p.address, "err", err)
}

// remove takes an engine out of the group.
func (w *engineWatcher) remove(name, why string) {
	j := w.joined[name]
	delete(w.joined, name)
	_ = w.group.Leave(name) // one that has drained is gone already
	if why != "" {
		w.log.Warn("engine leaves", "engine", name, "address", j.address, "reason", why)
	}
	w.leaving.Go(j.engine.Close)
}

// remoteEngines makes for each run a group of engines of other processes.
type remoteEngines struct {
	store  blob.Store
	opts   EnginesOptions
	log    *slog.Logger
	counts *remoteCounts
}

func newRemoteEngines(store blob.Store, o EnginesOptions, log *slog.Logger) *remoteEngines {
	return &remoteEngines{store: store, opts: o, log: log, counts: &remoteCounts{
		byRun: map[string][2]int{}, refusals: map[string]int64{"untrusted": 0, "load": 0},
	}}
}

// make implements sampling.Config.NewEngine.
func (f *remoteEngines) make(r *run.Loaded) (sampling.Engine, error) {
	group, err := fleet.New(fleet.Config{
		MaxContext: r.Config.EngineContext(), Now: time.Now, Log: f.log.With("run_id", r.Ref.RunID),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &remoteRun{Fleet: group, watcher: newEngineWatcher(f.store, r, group, f.opts, f.counts, f.log), stop: cancel}
	e.watching.Go(func() { e.watcher.watch(ctx) })
	return e, nil
}

// remoteRun is the engine of a run, whose engines are looked for while it is open.
type remoteRun struct {
	*fleet.Fleet
	watcher  *engineWatcher
	stop     context.CancelFunc
	watching sync.WaitGroup
}

const (
	// firstEnginePatience is how long a load waits for the first engine. The step is tried
	// again after that, so that the run says what it waits for.
	firstEnginePatience = 30 * time.Second
	firstEnginePause    = 50 * time.Millisecond
)

// Load implements policy.Loader.
func (e *remoteRun) Load(ctx context.Context, ref blob.Ref, version int64) error {
	for waited := time.Duration(0); e.watcher.counts.joined(e.watcher.run) == 0; waited += firstEnginePause {
		if waited >= firstEnginePatience {
			return fmt.Errorf("no engine of run %s has answered for %s: start temper role engine --run %s", e.watcher.run, firstEnginePatience, e.watcher.run)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(firstEnginePause):
		}
	}
	return e.Fleet.Load(ctx, ref, version)
}

// Close implements sampling.Engine. The engines continue: other roles may use them.
func (e *remoteRun) Close() {
	e.stop()
	e.watching.Wait()
	e.watcher.counts.forget(e.watcher.run)
	e.Fleet.Close()
}

// countedLoads counts the policies that an engine could not load.
type countedLoads struct {
	*remote.Engine
	counts *remoteCounts
}

// Load implements policy.Loader.
func (c countedLoads) Load(ctx context.Context, ref blob.Ref, version int64) error {
	err := c.Engine.Load(ctx, ref, version)
	if err != nil && ctx.Err() == nil && !errors.Is(err, remote.ErrGarbage) {
		c.counts.refuse("load")
	}
	return err
}

// remoteCounts are the figures of the engines of other processes.
type remoteCounts struct {
	mu       sync.Mutex
	byRun    map[string][2]int // joined and refused
	refusals map[string]int64
}

func (c *remoteCounts) set(run string, joined, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byRun[run] = [2]int{joined, refused}
}

func (c *remoteCounts) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byRun, run)
}

func (c *remoteCounts) joined(run string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRun[run][0]
}

func (c *remoteCounts) refuse(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[reason]++
}

var (
	remoteEngineCount = prometheus.NewDesc("rl_member_engines", "Engines of other processes by state: in use, or left out.", []string{"state"}, nil)
	remoteRefusals    = prometheus.NewDesc("rl_member_refusals_total", "Answers for which an engine of another process was left out, and policies that one could not load.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (c *remoteCounts) Describe(to chan<- *prometheus.Desc) {
	to <- remoteEngineCount
	to <- remoteRefusals
}

// Collect implements prometheus.Collector.
func (c *remoteCounts) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var joined, refused int
	for _, n := range c.byRun {
		joined, refused = joined+n[0], refused+n[1]
	}
	to <- prometheus.MustNewConstMetric(remoteEngineCount, prometheus.GaugeValue, float64(joined), "joined")
	to <- prometheus.MustNewConstMetric(remoteEngineCount, prometheus.GaugeValue, float64(refused), "left_out")
	for reason, n := range c.refusals {
		to <- prometheus.MustNewConstMetric(remoteRefusals, prometheus.CounterValue, float64(n), reason)
	}
}
