package replay

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// part is a part of a step that is made as a whole.
type part int

// The parts of a step in the order in which they are made; unmade are objects that
// nothing makes again.
const (
	unmade part = iota
	groups      // and what is sampled and recorded of them
	policies
)

// place is where in a run an object belongs.
type place struct {
	step int
	part part
	why  string // of unmade
}

// placeOf reads from a key of a run who makes the object.
func placeOf(layout artifact.Layout, key string) place {
	rest, ours := strings.CutPrefix(key, layout.Dir()+"/")
	folder, rest, _ := strings.Cut(rest, "/")
	name, file, _ := strings.Cut(rest, "/")
	digits := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(name, "v"), ".json"), "step-")
	number, err := strconv.Atoi(digits)
	switch {
	case !ours || err != nil:
		return place{why: "nothing makes it again: bring it back from a copy of the store"}
	case folder == "policies":
		return place{step: number, part: policies}
	case folder == "steps" && (strings.Contains(file, "/") || file == "batch.json" || file == "rollouts.json"):
		return place{step: number, part: groups}
	case folder == "steps" && layout.Chain().Contains(key):
		return place{why: "it is a manifest of the chain, which is written once: bring it back from a copy of the store"}
	case folder == "steps":
		return place{why: "it holds measured times, which do not come again: bring it back from a copy of the store"}
	default:
		return place{why: "nothing makes it again: bring it back from a copy of the store"}
	}
}

// sharedShards is where the shards of all runs are.
const sharedShards = "cas/"

// placeOf is the function of that name, for shards of policies, too: what names one makes
// it.
func (b *Bench) placeOf(ctx context.Context, layout artifact.Layout, key string) (place, error) {
	if !strings.HasPrefix(key, sharedShards) {
		return placeOf(layout, key), nil
	}
	stored, err := artifact.StoredPolicies(ctx, b.Store, layout)
	if err != nil {
		return place{}, err
	}
	for _, p := range stored {
		shards, err := checkpoint.FolderShards(ctx, b.Store, layout.Policy(p.Version).Dir())
		if err != nil {
			return place{}, err
		}
		if slices.ContainsFunc(shards, func(ref blob.Ref) bool { return ref.Key == key }) {
			return place{step: int(p.Version), part: policies}, nil
		}
	}
	return placeOf(layout, key), nil
}

// CanRemake reports whether the object of a key is made of others, so that Repair may
// bring it back.
func CanRemake(runID, key string) bool {
	return placeOf(artifact.Layout{RunID: runID}, key).part != unmade
}

// sortedPlaces orders places so that each is made of what comes before it.
func sortedPlaces(of map[place][]blob.Ref) []place {
	var out []place
	for at := range of {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.part, b.part), strings.Compare(a.why, b.why))
	})
	return out
}
