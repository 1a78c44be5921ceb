package replay

import (
	"bytes"
	"context"
	"strings"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// MendInput names an object that an activity could not read.
type MendInput struct {
	Run run.Ref `json:"run"`
	// Damaged is the object as it should be. It has no SHA-256 if the checksum is unknown.
	Damaged blob.Ref `json:"damaged"`
}

// Mend makes an object of an open run again and puts it back, with the objects that are
// made together with it and are missing or damaged as well. Errors: Corrupt for an object
// that cannot be made again, or comes out with other bytes.
func (b *Bench) Mend(ctx context.Context, in MendInput) error {
	layout, key := artifact.Layout{RunID: in.Run.RunID}, in.Damaged.Key
	at, err := b.placeOf(ctx, layout, key)
	if err != nil {
		return err
	}
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
	if strings.HasPrefix(key, sharedShards) { // no part of the run's folder
		if err := blob.Restore(ctx, m.base, key, data); err != nil {
			return err
		}
		if err := m.recordRepair(ctx, key); err != nil {
			return err
		}
	}
	return m.putBackAll(ctx, key)
}

// isWhole reports whether the store holds the object intact, because another process has
// repaired it.
func (b *Bench) isWhole(ctx context.Context, want blob.Ref) bool {
	if want.SHA256 == "" {
		return false
	}
	_, err := blob.ReadRef(ctx, b.Store, want)
	return err == nil
}

// putBackAll puts back a damaged object, and the objects made with it that are missing or
// damaged.
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
		made, wanted, err := m.isWanted(ctx, info.Key, damaged, named)
		if err != nil {
			return err
		}
		if !wanted {
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

// isWanted reads an object that was made, and decides whether it is put back. One that
// is stored with other bytes is replaced only where a reference says which are right.
func (m *making) isWanted(ctx context.Context, key, damaged string, named map[string]blob.Ref) (made []byte, wanted bool, err error) {
	inPolicy := strings.HasPrefix(key, m.layout.Policy(int64(m.step)).Dir())
	if !inPolicy && !strings.HasPrefix(key, m.layout.Step(m.step).Dir()+"/") || m.isPassing(key) {
		return nil, false, nil
	}
	if made, _, err = read(ctx, m.scratch, key); err != nil {
		return nil, false, err
	}
	stored, there, err := read(ctx, m.base, key)
	if err != nil && !isDamage(err) {
		return nil, false, err
	}
	switch {
	case there && bytes.Equal(stored, made):
		return made, false, nil
	case key == damaged || inPolicy:
		return made, true, nil
	case !there:
		return made, !strings.HasPrefix(key, m.layout.Step(m.step).Groups()+"/"), nil // trajectories may have been deleted in time
	default:
		return made, named[key] == blob.RefOf(key, made), nil
	}
}
