package history

import (
	"context"
	"fmt"
	"path"
	"strings"

	"temper/trainer/checkpoint"
)

// Usage is what a run takes in the store. Shards are counted for each
// checkpoint that names them, and once more for all policies, though each is stored once.
type Usage struct {
	Steps int        `json:"steps"` // that ended
	Kinds []KindSize `json:"kinds"`
}

// KindSize adds up the objects of one kind. Unit is the thing that Count counts; it is
// empty if the kind does not grow with the run.
type KindSize struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
	Unit    string `json:"unit,omitempty"`
	Count   int    `json:"count,omitempty"`
}

// Usage adds up all objects of the run: the one reader that has to list them.
func (r *Run) Usage(ctx context.Context) (Usage, error) {
	infos, err := r.store.List(ctx, r.layout.Dir()+"/")
	if err != nil {
		return Usage{}, err
	}
	kinds := []KindSize{
		{Kind: "policies", Unit: "policy"}, {Kind: "checkpoints", Unit: "checkpoint"}, {Kind: "trajectories", Unit: "step"},
		{Kind: "batches", Unit: "step"}, {Kind: "records", Unit: "step"}, {Kind: "evaluations", Unit: "evaluation"}, {Kind: "data"},
	}
	var u Usage
	sampled := map[string]bool{} // folders of trajectories that are left
	for _, i := range infos {
		name := strings.TrimPrefix(i.Key, r.layout.Dir()+"/")
		kind, counted := kindOf(name)
		k := &kinds[kind]
		k.Objects++
		k.Bytes += i.Size
		if kind == kindTrajectories && path.Base(path.Dir(name)) != "ended" {
			counted = !sampled[path.Dir(name)]
			sampled[path.Dir(name)] = true
		}
		if counted {
			k.Count++
		}
		if strings.HasPrefix(name, "steps/") && path.Base(name) == "step.json" {
			u.Steps++
		}
	}
	for i := range kinds {
		if kinds[i].Unit == "step" && i != kindTrajectories { // old ones may be deleted
			kinds[i].Count = u.Steps
		}
	}
	u.Kinds = kinds
	if err := addCheckpointShards(ctx, r, &kinds[kindCheckpoints]); err != nil {
		return u, err
	}
	return u, addPolicyShards(ctx, r, &kinds[kindPolicies])
}

// addPolicyShards counts the bytes of the shards that policies name, each once.
func addPolicyShards(ctx context.Context, r *Run, k *KindSize) error {
	versions, err := r.Policies(ctx)
	if err != nil {
		return err
	}
	counted := map[string]bool{}
	for _, version := range versions {
		shards, err := checkpoint.FolderShards(ctx, r.store, r.layout.Policy(version).Dir())
		if err != nil {
			return fmt.Errorf("policy %d: %w", version, err)
		}
		for _, ref := range shards {
			if !counted[ref.Key] {
				counted[ref.Key] = true
				k.Bytes += ref.Size
			}
		}
	}
	return nil
}

// addCheckpointShards counts the bytes of the shards that checkpoints name.
func addCheckpointShards(ctx context.Context, r *Run, k *KindSize) error {
	entries, err := checkpoint.List(ctx, r.store, r.CheckpointFolder())
	if err != nil {
		return err
	}
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, r.store, e.Ref)
		if err != nil {
			return fmt.Errorf("checkpoint of cursor %d: %w", e.Step, err)
		}
		k.Bytes += d.Size
	}
	return nil
}

// Places in the kinds of Usage.
const (
	kindPolicies = iota
	kindCheckpoints
	kindTrajectories
	kindBatches
	kindRecords
	kindEvaluations
	kindData
)

// kindOf sorts a key of a run, given from the run's folder on. counted is true for
// the one key that each unit of the kind has.
func kindOf(name string) (kind int, counted bool) {
	top, rest, _ := strings.Cut(name, "/")
	switch {
	case top == "policies":
		return kindPolicies, path.Base(name) == "policy.json"
	case top == "checkpoints":
		return kindCheckpoints, path.Base(name) == "manifest.json"
	case top == "evals":
		return kindEvaluations, path.Ext(name) == ".jsonl" && !strings.Contains(rest, "/")
	case top == "data" || name == "tokenizer.json" || name == "chat_template.json":
		return kindData, false
	case top == "steps" && (strings.Contains(name, "/trajectories/") || strings.Contains(name, "/ended/")):
		return kindTrajectories, false
	case top == "steps" && (path.Base(name) == "batch.json" || strings.Contains(name, "/samples/")):
		return kindBatches, false
	default:
		return kindRecords, false
	}
}
