package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/proc/failpoint"
	"temper/internal/run/artifact"
	"temper/internal/run/chain"
)

// Chain writes the manifests of runs; see package proof. The zero value is ready.
type Chain struct {
	// By is this program and machine.
	By chain.Maker

	writer chain.Writer
	mu     sync.Mutex
	ref    blob.Ref // of the configuration that is in memory
	sums   []amendedSum
}

// AddStep writes the manifest of a step whose record is written, once.
func (c *Chain) AddStep(ctx context.Context, store blob.Store, in StepInput) error {
	failpoint.Hit("record/before-manifest")
	layout := artifact.Layout{RunID: in.Run.RunID}
	sum, err := c.configSum(ctx, store, in.Run, in.Step)
	if err != nil {
		return err
	}
	rollouts, built, err := readSummed[BuiltBatch](ctx, store, layout.Step(in.Step).BatchStats())
	if err != nil && !errors.Is(err, blob.ErrNotExist) { // a run does not stop for a deleted object
		return err
	}
	metrics := in.Train.Metrics
	d := chain.Draft{
		Facts: chain.Facts{
			Run: in.Run.RunID, Kind: chain.Step, Step: in.Step, Stage: in.Stage, Config: sum,
			SampledBy: in.SampledBy.Ref.SHA256, PolicyOut: in.Train.Policy.Ref.SHA256, Rollouts: rollouts.SHA256, Batch: built.Batch, Metrics: &metrics,
		},
		Keys: []string{
			layout.Step(in.Step).BatchStats(), layout.Step(in.Step).TrainResult(), layout.Policy(in.Train.Policy.Version).Ref(), layout.Step(in.Step).Log(), layout.Step(in.Step).Watch(),
			layout.Step(in.Step).Index(),
		},
		MadeBy: chain.AddMaker(chain.AddMaker(slices.Clone(in.Sample.MadeBy), in.Train.MadeBy), c.By),
	}
	for _, s := range in.usedSpans() {
		d.Facts.Spans = append(d.Facts.Spans, chain.Span{Until: s.Until, SampledBy: s.Policy.Ref.SHA256})
	}
	_, err = c.writer.Add(ctx, store, d, func(ctx context.Context) (chain.Draft, error) { return c.opening(ctx, store, in.Run, in.Step) })
	return err
}

// opening is what a run begins with, or what it has before the given step.
func (c *Chain) opening(ctx context.Context, store blob.Store, ref Ref, step int) (chain.Draft, error) {
	layout := artifact.Layout{RunID: ref.RunID}
	sum, err := c.configSum(ctx, store, ref, 0)
	if err != nil {
		return chain.Draft{}, err
	}
	d := chain.Draft{Facts: chain.Facts{Run: ref.RunID, Kind: chain.Opening, Step: step - 1, Config: sum}, MadeBy: chain.AddMaker(nil, c.By)}
	ready, _, err := artifact.Lookup[Prepared](ctx, store, layout.Data().Ready())
	if err != nil {
		return d, err
	}
	d.Facts.Data = ready.Files
	for _, file := range ready.Files {
		d.Keys = append(d.Keys, file.Key)
	}
	versions, err := artifact.Policies(ctx, store, layout)
	if err != nil {
		return d, err
	}
	versions = slices.DeleteFunc(versions, func(v int64) bool { return v >= int64(step) })
	if len(versions) > 0 {
		newest := versions[len(versions)-1]
		_, policy, err := readSummed[Policy](ctx, store, layout.Policy(newest).Ref())
		if err != nil {
			return d, err
		}
		d.Facts.PolicyOut = policy.Ref.SHA256
		d.Keys = append(d.Keys, layout.Policy(newest).Ref())
	}
	cfg, err := ReadConfig(ctx, store, ref)
	if err != nil {
		return d, err
	}
	if from := cfg.Fork; from.RunID != "" {
		d.Facts.Fork = fmt.Sprintf("%s@%d", from.RunID, from.Step)
		parent := artifact.Layout{RunID: from.RunID}
		key := parent.Step(from.Step).Manifest()
		if from.Step == 0 {
			key = parent.Chain().Opening()
		}
		data, err := blob.ReadKey(ctx, store, key)
		if err == nil {
			d.Fork = blob.RefOf(key, data)
		} else if !errors.Is(err, blob.ErrNotExist) {
			return d, err
		}
	}
	return d, nil
}

// seal writes the last manifest of a run and returns what its summary ends with.
func (c *Chain) seal(ctx context.Context, store blob.Store, ref Ref, last int, s Summary) (*chain.End, error) {
	head, err := c.close(ctx, store, ref, last)
	if err != nil {
		return nil, err
	}
	s.Proof = &chain.End{Head: head, Digest: chain.NoDigest}
	out := *s.Proof
	out.Digest, err = chain.Digest(s)
	return &out, err
}

// close writes the last manifest of a run and returns the head of its chain.
func (c *Chain) close(ctx context.Context, store blob.Store, ref Ref, last int) (chain.Head, error) {
	layout := artifact.Layout{RunID: ref.RunID}
	sum, err := c.configSum(ctx, store, ref, last)
	if err != nil {
		return chain.Head{}, err
	}
	d := chain.Draft{
		Facts:  chain.Facts{Run: ref.RunID, Kind: chain.Closing, Step: last, Config: sum},
		Keys:   []string{layout.Metrics()},
		MadeBy: chain.AddMaker(nil, c.By),
	}
	if d.Facts.Evaluations, err = evaluated(ctx, store, layout); err != nil {
		return chain.Head{}, err
	}
	e, err := c.writer.Add(ctx, store, d, func(ctx context.Context) (chain.Draft, error) { return c.opening(ctx, store, ref, last+1) })
	return chain.Head{Link: e.Manifest.Link, Seal: e.Ref.SHA256}, err
}

// evaluated are the trajectories of the evaluations that have ended.
func evaluated(ctx context.Context, store blob.Store, layout artifact.Layout) ([]blob.Ref, error) {
	infos, _, err := store.ListFolder(ctx, layout.Evals())
	if err != nil {
		return nil, err
	}
	var out []blob.Ref
	for _, info := range infos {
		if path.Ext(info.Key) != ".json" {
			continue
		}
		e, ok, err := artifact.Lookup[Evaluation](ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		if ok && !e.Record.IsZero() {
			out = append(out, e.Record)
		}
	}
	return out, nil
}

// readSummed reads a JSON document with the Ref of its bytes.
func readSummed[T any](ctx context.Context, store blob.Store, key string) (ref blob.Ref, v T, err error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return blob.Ref{}, v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return blob.Ref{}, v, fmt.Errorf("decode %s: %w: %w", store.Locate(key), err, blob.ErrCorrupt)
	}
	return blob.RefOf(key, data), v, nil
}

// amendedSum is the sum of a configuration from a step on.
type amendedSum struct {
	from int
	sum  string
}

// configSum is the sum of the frozen configuration, or of it and the amendments up to
// the step where there are some: an order for a later step changes nothing before it.
func (c *Chain) configSum(ctx context.Context, store blob.Store, ref Ref, step int) (string, error) {
	layout := artifact.Layout{RunID: ref.RunID}
	if ref.Config.Key == layout.Config().Opened() {
		return ref.Config.SHA256, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ref != ref.Config {
		sums, err := amendedSums(ctx, store, ref)
		if err != nil {
			return "", err
		}
		c.ref, c.sums = ref.Config, sums
	}
	out := c.sums[0].sum
	for _, s := range c.sums {
		if s.from <= step {
			out = s.sum
		}
	}
	return out, nil
}

// amendedSums are the sums of an amended configuration: first that of the frozen one,
// then one for each amendment since, over the sum before and the amendment.
func amendedSums(ctx context.Context, store blob.Store, ref Ref) ([]amendedSum, error) {
	key := artifact.Layout{RunID: ref.RunID}.Config().Opened()
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, fmt.Errorf("configuration of run %s: %w", ref.RunID, err)
	}
	frozen, err := config.Load(key, data, nil)
	if err != nil {
		return nil, err
	}
	cfg, err := ReadConfig(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	out := []amendedSum{{sum: blob.RefOf(key, data).SHA256}}
	late := cfg.Amendments[min(len(frozen.Amendments), len(cfg.Amendments)):]
	slices.SortStableFunc(late, func(a, b config.Amendment) int { return cmp.Compare(a.FromStep, b.FromStep) })
	for _, a := range late {
		change, err := json.Marshal(config.Amendment{FromStep: a.FromStep, Set: a.Set, Repeat: a.Repeat}) // without the name of its author
		if err != nil {
			return nil, err
		}
		out = append(out, amendedSum{a.FromStep, blob.RefOf("", append([]byte(out[len(out)-1].sum+"\n"), change...)).SHA256})
	}
	return out, nil
}
