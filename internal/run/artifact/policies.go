package artifact

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"temper/internal/blob"
)

// StoredPolicy is what the store has of a published policy.
type StoredPolicy struct {
	Version int64
	// Whole is true for a policy that the run has. Otherwise it is being published, or a
	// process died while deleting it.
	Whole bool
	// Files are the keys in the policy's folder.
	Files []string
}

// StoredPolicies lists the stored policies of a run, by version, incomplete ones too.
func StoredPolicies(ctx context.Context, s blob.Store, l Layout) ([]StoredPolicy, error) {
	infos, err := s.List(ctx, runKey(l, "policies")+"/v")
	if err != nil {
		return nil, fmt.Errorf("list policies of run %s: %w", l.RunID, err)
	}
	found := map[int64]StoredPolicy{}
	for _, info := range infos {
		name, _, inFolder := strings.Cut(strings.TrimPrefix(info.Key, runKey(l, "policies")+"/"), "/")
		version, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSuffix(name, ".json"), "v"), 10, 64)
		if err != nil {
			continue
		}
		p := found[version]
		p.Version = version
		switch {
		case inFolder && path.Base(l.Policy(version).Dir()) == name:
			p.Files = append(p.Files, info.Key)
		case info.Key == l.Policy(version).Ref():
			p.Whole = true
		default:
			continue
		}
		found[version] = p
	}
	out := make([]StoredPolicy, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b StoredPolicy) int { return int(a.Version - b.Version) })
	return out, nil
}

// Policies lists the versions of the policies that a run has, sorted.
func Policies(ctx context.Context, s blob.Store, l Layout) ([]int64, error) {
	infos, _, err := s.ListFolder(ctx, runKey(l, "policies"))
	if err != nil {
		return nil, fmt.Errorf("list policies of run %s: %w", l.RunID, err)
	}
	var out []int64
	for _, info := range infos {
		number := strings.TrimPrefix(strings.TrimSuffix(path.Base(info.Key), ".json"), "v")
		if version, err := strconv.ParseInt(number, 10, 64); err == nil && info.Key == l.Policy(version).Ref() {
			out = append(out, version)
		}
	}
	slices.Sort(out)
	return out, nil
}

// EvaluatedPolicies lists the versions that an evaluation has begun to measure, sorted.
func EvaluatedPolicies(ctx context.Context, s blob.Store, l Layout) ([]int64, error) {
	infos, names, err := s.ListFolder(ctx, l.Evals())
	if err != nil {
		return nil, fmt.Errorf("list evaluations of run %s: %w", l.RunID, err)
	}
	for _, info := range infos {
		names = append(names, path.Base(info.Key))
	}
	var out []int64
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".json"), ".jsonl")
		version, err := strconv.ParseInt(name[strings.LastIndex(name, "-v")+len("-v"):], 10, 64)
		if strings.Contains(name, "-v") && err == nil {
			out = append(out, version)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
