package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/chain"
	"temper/trainer/checkpoint"
)

// Kernels of another kind add in another order, and the last bits differ. Then a step
// is held to bounds: it is sampled again and compared, and learns from the trajectories
// that are stored, so that its weights can be compared, too.

// Bounds between a step and itself under other kernels.
const (
	// maxLogprobApart is between two log-probabilities of one token, in nats.
	maxLogprobApart = 1e-3
	// maxPartedShare is the largest share of a step's trajectories that may draw another
	// token somewhere, because a draw fell between two probabilities; one is always
	// allowed.
	maxPartedShare = 0.05
	// maxWeightsApart is the norm of the difference between two weights, as a part of
	// that of the weights.
	maxWeightsApart = 1e-3
	// maxNumberApart is between two numbers of a record, as a part of the larger;
	// numbers below minNumber are not told apart.
	maxNumberApart = 0.02
	minNumber      = 1e-5
)

// bounds hold a step that other kernels made.
type bounds struct{ *making }

// apart says which kernels made the step and differ from those here; none for a run
// that does not say. It notes another build, which alone is no reason for other bits.
func (m bounds) apart(ctx context.Context) ([]string, error) {
	manifest, ok, err := artifact.Lookup[chain.Manifest](ctx, m.base, m.layout.Step(m.step).Manifest())
	if err != nil && !isDamage(err) {
		return nil, err
	}
	if !ok || err != nil || m.bench.Makers == nil {
		return nil, nil
	}
	var out []string
	for _, here := range m.bench.Makers(m.newest.At(m.step)) {
		for _, then := range manifest.MadeBy {
			if then.Role != here.Role {
				continue
			}
			if then.Build != here.Build || then.Go != here.Go {
				m.notes.add("the %s was build %s with %s, and this is %s with %s", then.Role, then.Build, then.Go, here.Build, here.Go)
			}
			out = append(out, kernelsApart(then, here)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// kernelsApart lists what decides bits and is not the same for two makers.
func kernelsApart(then, here chain.Maker) []string {
	var out []string
	differ := func(what, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("%s: %s %s, and here %s", then.Role, what, a, b))
		}
	}
	differ("backend", then.Backend, here.Backend)
	if then.Kernels == "" || here.Kernels == "" {
		differ("features of the processor", strings.Join(then.Features, ","), strings.Join(here.Features, ","))
		return out
	}
	a, b := strings.Fields(then.Kernels), strings.Fields(here.Kernels)
	if len(a) != len(b) {
		differ("kernels", then.Kernels, here.Kernels)
		return out
	}
	for i := range a {
		differ("kernels", a[i], b[i])
	}
	return out
}

// compareGroups compares what was sampled with what is stored, within bounds, and puts
// the stored groups in the place of the sampled ones.
func (m bounds) compareGroups(ctx context.Context) error {
	parted, all := 0, 0
	for _, id := range m.ids {
		key := m.layout.Step(m.step).Group(id)
		data, there, err := read(ctx, m.base, key)
		if err != nil && !isDamage(err) {
			return err
		}
		stored, err := run.ReadTrajectories(ctx, m.base, key)
		if !there || isDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		made, err := run.ReadTrajectories(ctx, m.over, key)
		if err != nil {
			return err
		}
		n, far := groupsApart(stored, made)
		parted, all = parted+n, all+len(stored)
		if equalBut(stored, made, nil) {
			continue
		}
		m.close[key] = fmt.Sprintf("log-probabilities are up to %.1e apart; %d of %d trajectories draw another token somewhere", far, n, len(stored))
		if far > maxLogprobApart {
			m.far[key] = true
		}
		if _, err := blob.PutBytes(ctx, m.over, key, data, blob.Always); err != nil {
			return err
		}
	}
	if float64(parted) > max(1, maxPartedShare*float64(all)) {
		m.notes.add("%d of %d trajectories draw other tokens: more than other kernels explain", parted, all)
		for key := range m.close {
			m.far[key] = true
		}
	}
	return nil
}

// groupsApart counts the trajectories whose tokens part, and finds the largest distance
// of log-probabilities before they do.
func groupsApart(stored, made []rl.Trajectory) (parted int, far float64) {
	if len(stored) != len(made) {
		return max(len(stored), len(made)), math.Inf(1)
	}
	for i := range stored {
		a, b := &stored[i], &made[i]
		if isLost(*a) {
			continue
		}
		if !slices.Equal(a.Tokens, b.Tokens) {
			parted++
		}
		for at := range min(len(a.Tokens), len(b.Tokens)) {
			if a.Tokens[at] != b.Tokens[at] {
				break
			}
			far = max(far, math.Abs(float64(a.RolloutLogprobs[at])-float64(b.RolloutLogprobs[at])))
		}
	}
	return parted, far
}

// judgeWithin judges an object that differs under other kernels.
func (m bounds) judgeWithin(ctx context.Context, key string, stored, made []byte) (Verdict, string) {
	_, inPolicy := strings.CutPrefix(key, m.layout.Policy(int64(m.step)).Dir()+"/")
	switch {
	case inPolicy && (path.Ext(key) == ".safetensors" || path.Base(key) == "shards.json"):
		return m.judgeWeights(ctx)
	case inPolicy && path.Base(key) == "policy.json", key == m.layout.Policy(int64(m.step)).Ref(), key == m.checkpoint:
		return Close, "it names other bits"
	case path.Ext(key) == ".json" && path.Dir(key) == m.layout.Step(m.step).Dir() && key != m.layout.Step(m.step).Batch():
		a, errA := artifact.Timeless(key, stored)
		b, errB := artifact.Timeless(key, made)
		var x, y any
		if errA != nil || errB != nil || json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			return Differs, difference(key, stored, made)
		}
		if where := numbersApart("", x, y); where != "" {
			return Differs, where
		}
		return Close, fmt.Sprintf("its numbers are within %g of each other", maxNumberApart)
	default:
		return Differs, difference(key, stored, made)
	}
}

// judgeWeights compares the weights of the policy that came of the step.
func (m bounds) judgeWeights(ctx context.Context) (Verdict, string) {
	var policies [2]checkpoint.Policy
	for i, store := range []blob.Store{m.base, m.scratch} {
		p, ok, err := artifact.Lookup[run.Policy](ctx, store, m.layout.Policy(int64(m.step)).Ref())
		if i == 1 {
			store = m.over // shards that were stored already are not in the scratch
		}
		if err == nil && ok {
			policies[i], err = checkpoint.LoadWeights(ctx, store, p.Ref)
		}
		if err != nil || !ok {
			return Differs, fmt.Sprintf("its weights cannot be read: %v", err)
		}
	}
	a, b := policies[0].Weights, policies[1].Weights
	if len(a) != len(b) {
		return Differs, fmt.Sprintf("has %d tensors, and the step makes %d", len(a), len(b))
	}
	var diff, norm float64
	for i := range a {
		if a[i].Name != b[i].Name || len(a[i].Data) != len(b[i].Data) {
			return Differs, fmt.Sprintf("has tensor %s, and the step makes %s", a[i].Name, b[i].Name)
		}
		for j := range a[i].Data {
			x, y := float64(a[i].Data[j]), float64(b[i].Data[j])
			diff, norm = diff+(x-y)*(x-y), norm+x*x
		}
	}
	apart := math.Sqrt(diff / norm)
	note := fmt.Sprintf("weights are %.1e of their norm apart", apart)
	if !(apart <= maxWeightsApart) {
		return Differs, note
	}
	return Close, note
}

// numbersApart names the first value of two documents that differs by more than the
// bounds allow. Sums of other weights are left out.
func numbersApart(at string, a, b any) string {
	switch x := a.(type) {
	case map[string]any:
		return fieldsApart(at, x, b)
	case []any:
		return elementsApart(at, x, b)
	case float64:
		y, ok := b.(float64)
		if ok && math.Abs(x-y) <= max(minNumber, maxNumberApart*max(math.Abs(x), math.Abs(y))) {
			return ""
		}
	default:
		if a == b {
			return ""
		}
	}
	return fmt.Sprintf("%s %s, and the step makes one that %s", at, shown(a), shown(b))
}

func fieldsApart(at string, x map[string]any, b any) string {
	y, ok := b.(map[string]any)
	if !ok || len(x) != len(y) {
		return at + " has other fields"
	}
	for _, key := range slices.Sorted(maps.Keys(x)) {
		if key == "sha256" {
			continue
		}
		if where := numbersApart(strings.TrimPrefix(at+"."+key, "."), x[key], y[key]); where != "" {
			return where
		}
	}
	return ""
}

func elementsApart(at string, x []any, b any) string {
	y, ok := b.([]any)
	if !ok || len(x) != len(y) {
		return at + " has other elements"
	}
	for i := range x {
		if where := numbersApart(fmt.Sprintf("%s[%d]", at, i), x[i], y[i]); where != "" {
			return where
		}
	}
	return ""
}
