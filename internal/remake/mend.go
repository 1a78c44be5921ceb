package remake

import (
	"bytes"
	"context"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
)

// MendInput names an object that an activity could not read.
type MendInput struct {
	Run run.Ref `json:"run"`
	// Damaged is the object as it should be; without a SHA-256 where nobody knows it.
	Damaged blob.Ref `json:"damaged"`
}

// Mend makes an object of a run that goes on again, with what was made beside it and is
// gone or damaged as well, and puts it back. Errors: Corrupt for an object that cannot
// be made again, or comes out with other bytes.
func (b *Bench) Mend(ctx context.Context, in MendInput) error {
	layout, key := artifact.Layout{RunID: in.Run.RunID}, in.Damaged.Key
	at := placeOf(layout, key)
	plan, ok, err := run.StoredPlan(ctx, b.Store, in.Run.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.NotFound, "no run %q is stored", in.Run.RunID)
	}
	if err == nil && at.part == unmade {
		err = fault.Newf(fault.Corrupt, "%s: %s", b.Store.Locate(key), at.why)
	}
	if err != nil || at.part == groups && b.isWhole(ctx, in.Damaged) {
		return err
	}
	m, err := b.beginAt(ctx, plan, at)
	if err != nil {
		return err
	}
	defer m.end()
	m.over.Hide(key)
	if m.how, err = m.remakePart(ctx, at.part); err != nil {
		return err
	}
	data, made, err := read(ctx, m.scratch, key)
	switch {
	case err != nil:
		return err
	case !made:
		return fault.Newf(fault.Corrupt, "%s: its step does not make it", b.Store.Locate(key))
	case in.Damaged.SHA256 != "" && blob.RefOf(key, data).SHA256 != in.Damaged.SHA256:
		return fault.Newf(fault.Corrupt, "%s: it was %s, and came out with other bytes than its reference says: another build or kind of processor makes other bits", b.Store.Locate(key), m.how)
	}
	return m.putBackAll(ctx, key)
}

// isWhole reports whether somebody else has brought an object back.
func (b *Bench) isWhole(ctx context.Context, want blob.Ref) bool {
	if want.SHA256 == "" {
		return false
	}
	_, err := blob.ReadRef(ctx, b.Store, want)
	return err == nil
}

// putBackAll puts back a damaged object, and what else is gone or damaged of what was
// made with it. Trajectories that nobody asked for may have been deleted in time.
func (m *making) putBackAll(ctx context.Context, damaged string) error {
	infos, err := m.scratch.List(ctx, m.layout.Dir()+"/")
	if err != nil {
		return err
	}
	named, err := m.namedByBatch(ctx)
	if err != nil {
		return err
	}
	for _, info := range infos {
		own := strings.HasPrefix(info.Key, m.layout.Step(m.step)+"/") || strings.HasPrefix(info.Key, m.layout.Policy(int64(m.step)))
		if !own || m.isPassing(info.Key) {
			continue
		}
		made, _, err := read(ctx, m.scratch, info.Key)
		if err != nil {
			return err
		}
		stored, there, err := read(ctx, m.base, info.Key)
		if err != nil && !isDamage(err) {
			return err
		}
		deleted := !there && info.Key != damaged && strings.HasPrefix(info.Key, m.layout.Groups(m.step)+"/")
		sure := !there || info.Key == damaged || named[info.Key] == blob.RefOf(info.Key, made) || strings.HasPrefix(info.Key, m.layout.Policy(int64(m.step)))
		if deleted || !sure || there && bytes.Equal(stored, made) {
			continue
		}
		if err := blob.Restore(ctx, m.base, info.Key, made); err != nil {
			return err
		}
		if err := m.recordRepair(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}
