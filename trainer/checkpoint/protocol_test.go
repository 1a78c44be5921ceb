package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/model"
)

// errKilled is what the calls of a process return that is no more.
var errKilled = errors.New("killed")

// process is a writer or a collector. Each of its calls to the store waits until
// the world lets it happen.
type process struct {
	blob.Store
	world *world
	id    int
	dead  bool
}

// call is one that waits.
type call struct {
	process *process
	name    string
	do      chan struct{}
}

// world decides which call happens next and when time passes.
type world struct {
	store   *memblob.Store
	mu      sync.Mutex
	waiting []*call
	alive   int
	started int
	log     []string
	halves  int
	favored int // the process whose calls go first
}

// turn waits until the call may happen.
func (p *process) turn(name string) error {
	c := &call{process: p, name: name, do: make(chan struct{})}
	p.world.mu.Lock()
	p.world.waiting = append(p.world.waiting, c)
	p.world.mu.Unlock()
	<-c.do
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if p.dead {
		return errKilled
	}
	return nil
}

func (p *process) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if err := p.turn("put " + key); err != nil {
		return blob.Ref{}, err
	}
	return p.Store.Put(ctx, key, r, cond)
}

func (p *process) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if err := p.turn("swap " + key); err != nil {
		return blob.Ref{}, err
	}
	return p.Store.Swap(ctx, key, old, data)
}

func (p *process) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := p.turn("get " + key); err != nil {
		return nil, err
	}
	return p.Store.Get(ctx, key)
}

func (p *process) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := p.turn("stat " + key); err != nil {
		return blob.Info{}, err
	}
	return p.Store.Stat(ctx, key)
}

func (p *process) Delete(ctx context.Context, key string) error {
	if err := p.turn("delete " + key); err != nil {
		return err
	}
	return p.Store.Delete(ctx, key)
}

// List takes two moments, as one of a file system or of several pages does.
func (p *process) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if err := p.turn("list " + prefix); err != nil {
		return nil, err
	}
	first, err := p.Store.List(ctx, prefix)
	if err != nil || len(first) == 0 {
		return first, err
	}
	p.world.mu.Lock()
	p.world.halves += 7
	pivot := first[p.world.halves%len(first)].Key
	p.world.mu.Unlock()
	if err := p.turn("list on " + prefix); err != nil {
		return nil, err
	}
	second, err := p.Store.List(ctx, prefix)
	first = slices.DeleteFunc(first, func(i blob.Info) bool { return i.Key >= pivot })
	second = slices.DeleteFunc(second, func(i blob.Info) bool { return i.Key < pivot })
	return append(first, second...), err
}

// content is one of few states, so that checkpoints share shards.
func smallState(n int) State {
	one := func(v int) []model.Tensor {
		return []model.Tensor{{Name: "x", Shape: []int{1}, Data: []float32{float32(v)}}}
	}
	return State{Weights: one(n & 1), FirstMoments: one(n >> 1 & 1), SecondMoments: one(n >> 2 & 1)}
}

// policyOf is the folder of the policies of the run whose checkpoints have a prefix.
func policyOf(prefix string) string { return path.Dir(prefix) + "/policies" }

// publishSmall publishes the weights of a state, which checkpoints of it share.
func publishSmall(ctx context.Context, store blob.Store, folder string, version, n int) error {
	s, err := newShardPublication(store, []model.TensorSpec{{Name: "x", Shape: []int{1}}}, SourceOf(smallState(n).Weights))
	if err == nil {
		err = s.seal(ctx)
	}
	if err == nil {
		_, err = s.publish(ctx, fmt.Sprintf("%s/v%d", folder, version), Policy{})
	}
	return err
}

// dropSmall deletes a policy as retention does.
func dropSmall(ctx context.Context, store blob.Store, prefix string) error {
	shards, err := FolderShards(ctx, store, prefix)
	if err == nil {
		err = DropPolicy(ctx, store, prefix)
	}
	for _, name := range []string{fileConfig, fileShards} {
		if err == nil {
			err = store.Delete(ctx, path.Join(prefix, name))
		}
	}
	if err == nil {
		err = Release(ctx, store, "runs", shards)
	}
	return err
}

// begin starts a process that does one thing.
func (w *world) begin(choice int) {
	p := &process{Store: w.store, world: w, id: w.started}
	w.started++
	run := func(n int) string { return fmt.Sprintf("runs/%c/ckpt", 'a'+n%2) }
	mine, other, step := run(choice), run(choice+1), choice/2%4
	var name string
	var work func(ctx context.Context) error
	switch choice / 8 % 11 {
	case 8:
		name = fmt.Sprintf("publish %s %d", policyOf(mine), step)
		work = func(ctx context.Context) error { return publishSmall(ctx, p, policyOf(mine), step, choice/64) }
	case 9:
		name = fmt.Sprintf("copy %s %d", policyOf(mine), step)
		work = func(ctx context.Context) error {
			key := fmt.Sprintf("%s/v%d/%s", policyOf(other), step, filePolicy)
			src, err := blob.ReadKey(ctx, p, key)
			if err != nil {
				return err
			}
			_, err = CopyPolicy(ctx, p, blob.RefOf(key, src), fmt.Sprintf("%s/v%d", policyOf(mine), step))
			return err
		}
	case 10:
		name = fmt.Sprintf("drop %s %d", policyOf(mine), step)
		work = func(ctx context.Context) error { return dropSmall(ctx, p, fmt.Sprintf("%s/v%d", policyOf(mine), step)) }
	case 0, 1:
		name = fmt.Sprintf("save %s %d", mine, step)
		work = func(ctx context.Context) error {
			_, err := SaveWith(ctx, p, mine, step, smallState(choice/64), SaveOptions{Repair: choice/512%4 == 0})
			return err
		}
	case 2:
		name = fmt.Sprintf("adopt %s %d", mine, step)
		work = func(ctx context.Context) error {
			src, err := blob.ReadKey(ctx, p, manifestKey(other, step))
			if err != nil {
				return err
			}
			_, err = Adopt(ctx, p, blob.RefOf(manifestKey(other, step), src), mine)
			return err
		}
	case 3:
		name = "prune " + mine
		work = func(ctx context.Context) error { return Prune(ctx, p, "runs", mine, func(int) bool { return false }) }
	case 4:
		name = fmt.Sprintf("pin %s %d", mine, step)
		work = func(ctx context.Context) error {
			if choice/64%2 == 0 {
				return Unpin(ctx, p, mine, step)
			}
			return Pin(ctx, p, mine, step, "test")
		}
	case 5:
		name = "store shards and stop"
		work = func(ctx context.Context) error { return w.litter(ctx, choice/64) }
	default:
		name = "collect"
		work = func(ctx context.Context) error {
			_, err := Collect(ctx, p, "runs", CollectOptions{Grace: -1}) // no shard is too young
			return err
		}
	}
	w.note("process %d: %s", p.id, name)
	w.mu.Lock()
	w.alive++
	w.mu.Unlock()
	go func() {
		err := work(context.Background())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.alive--
		w.log = append(w.log, fmt.Sprintf("process %d ends: %v", p.id, err))
	}()
}

// litter leaves the shards of a state that no manifest names.
func (w *world) litter(ctx context.Context, n int) error {
	s := saver{store: w.store}
	state := smallState(n)
	if err := s.seal(ctx, &state, &manifest{}); err != nil {
		return err
	}
	return s.upload(ctx, false)
}

// calls lists what waits, in an order that does not depend on the machine.
func (w *world) calls() []*call {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.waiting, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.process.id, b.process.id), cmp.Compare(a.name, b.name))
	})
	return slices.Clone(w.waiting)
}

// note adds a line to what a failed test shows.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// living is the number of processes that have not ended.
func (w *world) living() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alive
}

// let makes a call happen.
func (w *world) let(i int) {
	w.mu.Lock()
	c := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	w.mu.Unlock()
	w.note("process %d: %s", c.process.id, c.name)
	close(c.do)
	synctest.Wait()
}

// act does what a choice says.
func (w *world) act(choice int) {
	calls := w.calls()
	kind, rest := choice%32, choice/32
	switch {
	case (kind < 4 || len(calls) == 0) && w.living() < 5:
		w.begin(rest)
	case kind == 4: // time passes, more than anyone waits for another
		pause := []time.Duration{time.Second, time.Minute, maxCollect + slack + time.Second, time.Hour}[rest%4]
		w.note("pause %v", pause)
		time.Sleep(pause)
	case kind == 5 && len(calls) > 0:
		p := calls[rest%len(calls)].process
		w.mu.Lock()
		p.dead = true
		w.mu.Unlock()
		w.note("process %d is killed", p.id)
	case len(calls) > 0:
		w.let(w.pick(calls, kind, rest))
	default: // all wait for time
		time.Sleep(pollCollect)
	}
}

// pick chooses the call that happens: mostly the next one of the process that
// had the last, for one that is interrupted anywhere is rarer than one that is not.
func (w *world) pick(calls []*call, kind, rest int) int {
	i := slices.IndexFunc(calls, func(c *call) bool { return c.process.id == w.favored })
	if i < 0 || kind < 8 {
		i = rest % len(calls)
		w.favored = calls[i].process.id
	}
	return i
}

// missing says which shard a manifest names that is not there.
func (w *world) missing() string {
	ctx := context.Background()
	infos, err := w.store.List(ctx, "runs/")
	if err != nil {
		return err.Error()
	}
	for _, info := range infos {
		_, ok := stepOf(info.Key)
		if !ok && !isShardList(info.Key) {
			continue
		}
		data, err := blob.ReadKey(ctx, w.store, info.Key)
		if err != nil {
			return err.Error()
		}
		m, err := (&verifier{}).decode(info.Key, data, ok)
		if err == nil {
			err = m.complete(ctx, w.store)
		}
		if err != nil {
			return fmt.Sprintf("%s names what is not there: %v", info.Key, err)
		}
	}
	return ""
}

// finish lets all processes come to their end, and reports what missing does.
func (w *world) finish() (lost string) {
	for w.living() > 0 {
		if len(w.calls()) > 0 {
			w.let(0)
		} else {
			time.Sleep(pollCollect)
		}
		if lost == "" {
			lost = w.missing()
			if lost != "" {
				w.note("LOST %s", lost)
			}
		}
	}
	return lost
}

// garbage lists what a collection leaves although nothing names it, when all
// that died is forgotten.
func (w *world) garbage() string {
	time.Sleep(pendingLost + time.Hour)
	ctx := context.Background()
	for range 2 { // the first forgets announcements
		if _, err := Collect(ctx, w.store, "runs", CollectOptions{}); err != nil {
			return err.Error()
		}
	}
	c := collector{store: w.store, root: "runs"}
	if err := c.mark(ctx); err != nil {
		return err.Error()
	}
	infos, err := w.store.List(ctx, casRoot+"/")
	if err != nil {
		return err.Error()
	}
	var left []string
	for _, info := range infos {
		if !c.used[info.Key] {
			left = append(left, path.Base(info.Key))
		}
	}
	return strings.Join(left, " ")
}

// play lets the choices happen in a world of its own and reports what went wrong.
func (w *world) play(choices []int) string {
	for _, choice := range choices {
		w.act(choice)
		if lost := w.missing(); lost != "" {
			w.finish()
			return lost
		}
	}
	if lost := w.finish(); lost != "" {
		return lost
	}
	if left := w.garbage(); left != "" {
		return "never collected: " + left
	}
	return w.missing()
}

// TestNoCollectionTakesANamedShard: writers, adopters, pruners, pins and
// collectors in any order of their calls to the store, with processes that die
// and ones that sleep through every patience, and not one moment at which a
// manifest names a shard that is not there.
func TestNoCollectionTakesANamedShard(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		choices := make([]int, rapid.IntRange(1, 200).Draw(r, "length"))
		for i := range choices {
			choices[i] = draw.IntN(1 << 20)
		}
		wrong := ""
		w := &world{}
		synctest.Test(t, func(*testing.T) {
			w.store = memblob.New()
			wrong = w.play(choices)
		})
		if wrong != "" {
			r.Fatalf("%s\n%s", wrong, strings.Join(w.log, "\n"))
		}
	})
}
