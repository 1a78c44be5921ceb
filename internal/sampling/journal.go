package sampling

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
)

// Bounds of the journal. A step that ends within the first moment writes nothing.
const (
	// journalEvery is the longest time for which the death of a process loses ended
	// trajectories.
	journalEvery = 2 * time.Second
	// journalBytes are written at once, packed.
	journalBytes = 8 << 20
	// journalPatience bounds the last write of a call that was taken away.
	journalPatience = 5 * time.Second
)

// journal stores trajectories that have ended before their groups, many to an object. It is
// a cache: a failed write is repeated with the next object, and what cannot be read is
// sampled again.
type journal struct {
	store  blob.Store
	layout artifact.Layout
	step   int

	full       chan struct{} // has a value when journalBytes wait
	end, ended chan struct{}

	mu sync.Mutex
	// waiting are the trajectories that are not written yet, by problem.
	waiting map[string][]record.Packed
	size    int
}

func newJournal(store blob.Store, layout artifact.Layout, step int) *journal {
	return &journal{
		store: store, layout: layout, step: step, waiting: map[string][]record.Packed{},
		full: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{}),
	}
}

// read calls do with each trajectory that earlier attempts have stored, of any worker's
// problems. It passes over objects that are damaged or gone meanwhile.
func (j *journal) read(ctx context.Context, do func(*rl.Trajectory) error) error {
	infos, _, err := j.store.ListFolder(ctx, j.layout.Step(j.step).EndedFolder())
	if err != nil {
		return err
	}
	for _, info := range infos {
		data, err := blob.ReadKey(ctx, j.store, info.Key)
		if blob.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		ts, err := record.Decode(data)
		if err != nil {
			continue
		}
		for i := range ts {
			if err := do(&ts[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// start begins to write.
func (j *journal) start(ctx context.Context) {
	go func() {
		defer close(j.ended)
		tick := time.NewTicker(journalEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-j.full:
			case <-j.end:
				return
			}
			_ = j.flush(ctx) // the next one writes it
		}
	}()
}

// stop ends the writing and waits for it. When another call has to continue, it first
// writes what is pending.
func (j *journal) stop(ctx context.Context, unfinished bool) {
	close(j.end)
	<-j.ended
	if !unfinished {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalPatience)
	defer cancel()
	_ = j.flush(ctx)
}

// add lets a trajectory wait for the next object.
func (j *journal) add(p record.Packed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[p.ProblemID] = append(j.waiting[p.ProblemID], p)
	if j.size += p.Size(); j.size < journalBytes {
		return
	}
	select {
	case j.full <- struct{}{}:
	default:
	}
}

// drop forgets the trajectories of a group that is complete.
func (j *journal) drop(problemID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.waiting[problemID] {
		j.size -= j.waiting[problemID][i].Size()
	}
	delete(j.waiting, problemID)
}

// flush writes everything pending. After an error of the store it stays pending.
func (j *journal) flush(ctx context.Context) error {
	for {
		taken := j.take()
		if len(taken) == 0 {
			return nil
		}
		data, err := record.Compact(taken)
		if err == nil {
			_, err = blob.PutBytes(ctx, j.store, j.layout.Step(j.step).Ended(blob.RefOf("", data).SHA256), data, blob.IfAbsent)
		}
		if err != nil && !errors.Is(err, blob.ErrExists) {
			j.putBack(taken)
			return err
		}
	}
}

// putBack lets trajectories that could not be written wait for the next tick.
func (j *journal) putBack(taken []record.Packed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range taken {
		j.waiting[p.ProblemID] = append(j.waiting[p.ProblemID], p)
		j.size += p.Size()
	}
}

// take takes what waits, in an order, as much as one object holds.
func (j *journal) take() []record.Packed {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []record.Packed
	size := 0
	for _, id := range slices.Sorted(maps.Keys(j.waiting)) {
		if size >= journalBytes {
			break
		}
		for _, p := range j.waiting[id] {
			size += p.Size()
			out = append(out, p)
		}
		delete(j.waiting, id)
	}
	j.size -= size
	slices.SortFunc(out, func(a, b record.Packed) int {
		return cmp.Or(cmp.Compare(a.ProblemID, b.ProblemID), cmp.Compare(a.Rollout, b.Rollout))
	})
	return out
}

// Bounds of what is beside the trajectories of a step.
const (
	// outputsBytes of outputs are written at once.
	outputsBytes = 8 << 20
	// timesPatience bounds the writing.
	timesPatience = 5 * time.Second
)

// timeRecorder collects what is not part of the run's bits: the times of trajectories, and
// the whole outputs of calls where the run keeps them. Each call writes what it has sampled,
// under the hash of the content. It is best effort: nothing depends on it.
type timeRecorder struct {
	store  blob.Store
	layout artifact.Layout
	step   int
	part   int // calls that sampled a part of the trajectories before

	mu      sync.Mutex
	times   []record.Times
	outputs []record.Output
	size    int // of outputs
}

// add takes what is known of a trajectory that has ended or was cut.
func (r *timeRecorder) add(ctx context.Context, t *rl.Trajectory) {
	outputs := record.OutputsOf(t)
	times := record.TimesOf(t, r.part)
	r.mu.Lock()
	r.times = append(r.times, times)
	r.outputs = append(r.outputs, outputs...)
	for i := range outputs {
		r.size += len(outputs[i].Stdout) + len(outputs[i].Stderr)
	}
	var full []record.Output
	if r.size >= outputsBytes {
		full, r.outputs, r.size = r.outputs, nil, 0
	}
	r.mu.Unlock()
	r.putOutputs(ctx, full)
}

// write stores what is left, also when the call was taken away.
func (r *timeRecorder) write(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timesPatience)
	defer cancel()
	if len(r.times) > 0 {
		data, err := record.EncodeTimes(r.times)
		r.put(ctx, r.layout.Step(r.step).Times, data, err)
	}
	r.putOutputs(ctx, r.outputs)
	r.times, r.outputs, r.size = nil, nil, 0
}

func (r *timeRecorder) putOutputs(ctx context.Context, outputs []record.Output) {
	if len(outputs) == 0 {
		return
	}
	data, err := record.EncodeOutputs(outputs)
	r.put(ctx, r.layout.Step(r.step).Outputs, data, err)
}

// put stores what was encoded. An error loses it, see timeRecorder.
func (r *timeRecorder) put(ctx context.Context, key func(sha256 string) string, data []byte, err error) {
	if err == nil {
		_, _ = blob.PutBytes(ctx, r.store, key(blob.RefOf("", data).SHA256), data, blob.IfAbsent)
	}
}
