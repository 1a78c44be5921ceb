package sampling

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/proc/failpoint"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
	"temper/internal/tool"
)

// With rl.partial_rollout_tokens several policies sample the trajectories of a step, one
// call after another. A call ends when each trajectory has ended or has as many response
// tokens as its policy samples. It stores the groups with cut trajectories, and the next
// call continues them. So the version of a token is a function of the step and of the
// token's place in the response alone.

// partMagic begins the stored form: the length of the cells' JSON as a uvarint, the JSON,
// and the compact record of the group. Cells are by rollout, null where there are none.
const partMagic = "temper parts 1\n"

// versionOf returns the version that samples a response token, counted from 0.
func (in GroupsInput) versionOf(token int) int64 {
	for _, s := range in.Before {
		if token < s.Until {
			return s.Policy.Version
		}
	}
	return in.Policy.Version
}

// sampledAs reports whether the trajectory has ended and each of its tokens has the version
// that the step asks for.
func (in GroupsInput) sampledAs(t *rl.Trajectory) bool {
	if t.StopReason == "" || t.StopReason == rl.StopInfraError || t.StopReason == rl.StopCut || t.PolicyVersion != in.versionOf(0) {
		return false
	}
	for i, sampled := range t.LossMask {
		if sampled && t.VersionAt(i) != in.versionOf(i-t.PromptTokens) {
			return false
		}
	}
	return true
}

// encodePart returns the stored form of an unfinished group.
func encodePart(group *openGroup) ([]byte, error) {
	cells, err := json.Marshal(group.cells)
	if err != nil {
		return nil, err
	}
	packed, err := record.Compact(group.ended)
	if err != nil {
		return nil, err
	}
	data := binary.AppendUvarint([]byte(partMagic), uint64(len(cells)))
	return append(append(data, cells...), packed...), nil
}

// decodePart reads an unfinished group, by rollout. Errors: blob.ErrCorrupt.
func decodePart(data []byte) (packed []record.Packed, cells [][]tool.Cell, err error) {
	bad := func(why error) ([]record.Packed, [][]tool.Cell, error) {
		return nil, nil, fmt.Errorf("%w: %w", why, blob.ErrCorrupt)
	}
	if len(data) < len(partMagic) || string(data[:len(partMagic)]) != partMagic {
		return bad(fmt.Errorf("want a first line %q", partMagic))
	}
	data = data[len(partMagic):]
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return bad(errors.New("the cells are cut short"))
	}
	if err := json.Unmarshal(data[n:][:size], &cells); err != nil {
		return bad(err)
	}
	if packed, err = record.DecodePacked(data[n+int(size):]); err != nil { //nolint:gosec // within the data
		return bad(err)
	}
	for i := range packed {
		if packed[i].Rollout != i || len(cells) != len(packed) {
			return bad(errors.New("the trajectories are not those of a group"))
		}
	}
	return packed, cells, nil
}

// lostParts are the problems whose stored parts are gone or damaged.
type lostParts []string

func (l lostParts) Error() string {
	return fmt.Sprintf("nothing can be read of what was sampled before of %d problems, the first is %s", len(l), l[0])
}

// takeParts restores the open groups from what the previous call has stored.
// Errors: lostParts.
func (g *gathering) takeParts(ctx context.Context, problems []rl.Problem) error {
	if len(g.in.Before) == 0 {
		return nil
	}
	lost := make([]bool, len(problems))
	err := artifact.Each(ctx, len(problems), func(ctx context.Context, i int) error {
		err := g.takePart(ctx, problems[i].ID)
		if lost[i] = blob.IsDamage(err); lost[i] {
			return nil
		}
		return err
	})
	var ids lostParts
	for i := range lost {
		if lost[i] {
			ids = append(ids, problems[i].ID)
		}
	}
	if err == nil && len(ids) > 0 {
		err = ids
	}
	return err
}

func (g *gathering) takePart(ctx context.Context, id string) error {
	data, err := blob.ReadKey(ctx, g.store, g.run.Layout.Step(g.in.Step).Part(len(g.in.Before), id))
	if err != nil {
		return err
	}
	packed, cells, err := decodePart(data)
	if err == nil && len(packed) != len(g.open[id].ended) {
		err = fmt.Errorf("%d trajectories, want %d: %w", len(packed), len(g.open[id].ended), blob.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	return g.open[id].resume(packed, cells)
}

// sampleLost samples lost parts again by the policies that sampled them, to the same bits.
func (r *Service) sampleLost(ctx context.Context, in GroupsInput, lost lostParts, progress *Progress) error {
	layout, last := artifact.Layout{RunID: in.Run.RunID}, len(in.Before)-1
	for _, id := range lost {
		if err := r.Store.Delete(ctx, layout.Step(in.Step).Part(len(in.Before), id)); err != nil {
			return err
		}
	}
	in.ProblemIDs, in.Policy, in.Until, in.Before = lost, in.Before[last].Policy, in.Before[last].Until, in.Before[:last]
	_, err := r.SampleGroups(ctx, in, progress)
	return err
}

// resume places the ended trajectories and keeps the others for their next part.
func (o *openGroup) resume(packed []record.Packed, cells [][]tool.Cell) error {
	o.before = make([]rl.Trajectory, len(packed))
	for i := range packed {
		t, err := packed[i].Unpack()
		if err != nil {
			return fmt.Errorf("%w: %w", err, blob.ErrCorrupt)
		}
		if t.StopReason == rl.StopCut {
			o.before[i], o.cells[i] = t, cells[i]
			continue
		}
		o.ended[i] = packed[i]
		o.left--
	}
	if o.left == 0 {
		return fmt.Errorf("no trajectory goes on: %w", blob.ErrCorrupt)
	}
	return nil
}

// withoutStored removes the problems whose part an earlier attempt of this call has stored.
func (g *gathering) withoutStored(ctx context.Context, problems []rl.Problem) ([]rl.Problem, error) {
	if g.in.Until == 0 {
		return problems, nil
	}
	key := func(id string) string { return g.run.Layout.Step(g.in.Step).Part(len(g.in.Before)+1, id) }
	there, err := listed(ctx, g.store, path.Dir(key("")))
	if err != nil {
		return nil, err
	}
	var todo []rl.Problem
	for _, p := range problems {
		if there[key(p.ID)] {
			g.out.Open++
		} else {
			todo = append(todo, p)
		}
	}
	return todo, nil
}

// storePart stores a group with trajectories that a newer policy continues.
func (g *gathering) storePart(ctx context.Context, group *openGroup) error {
	failpoint.Hit("sampling/before-part")
	data, err := encodePart(group)
	if err != nil {
		return fault.OfEncoding(fmt.Errorf("encode part of group %s: %w", group.problem.ID, err))
	}
	_, err = blob.PutBytes(ctx, g.store, g.run.Layout.Step(g.in.Step).Part(len(g.in.Before)+1, group.problem.ID), data, blob.IfAbsent)
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return err
	}
	failpoint.Hit("sampling/after-part")
	g.journal.drop(group.problem.ID)
	g.progress.groups.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.Open++
	return nil
}

// spans returns the spans of a step up to the one that this call samples.
func (in GroupsInput) spans() []run.PolicySpan {
	return append(in.Before[:len(in.Before):len(in.Before)], run.PolicySpan{Until: in.Until, Policy: in.Policy})
}

// check refuses spans that do not follow each other.
func (in GroupsInput) check() error {
	spans := in.spans()
	for i, s := range spans {
		last := i == len(spans)-1
		if s.Until < 0 || s.Until == 0 && !last || i > 0 && (s.Policy.Version <= spans[i-1].Policy.Version || s.Until > 0 && s.Until <= spans[i-1].Until) {
			return fault.Newf(fault.InvalidConfig, "step %d: span %d of %d ends at token %d under policy %d: spans must grow in both", in.Step, i+1, len(spans), s.Until, s.Policy.Version)
		}
	}
	return nil
}
