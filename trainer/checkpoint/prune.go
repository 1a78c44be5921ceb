package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"temper/internal/blob"
)

// Prune deletes the checkpoints under the prefix for which keep is false, then their shards
// that no checkpoint of any run below root names. It keeps the newest checkpoint and pinned
// ones, and deletes nothing when a shard of the newest is missing. It may run beside any
// Save, Adopt or Pin.
func Prune(ctx context.Context, store blob.Store, root, prefix string, keep func(step int) bool) error {
	p := pruner{store: store, root: root, prefix: prefix}
	if err := p.prune(ctx, keep); err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	return nil
}

type pruner struct {
	store        blob.Store
	root, prefix string
	clock        clock
}

func (p pruner) prune(ctx context.Context, keep func(step int) bool) error {
	entries, err := List(ctx, p.store, p.prefix)
	if err != nil || len(entries) == 0 {
		return err
	}
	pins, err := Pins(ctx, p.store, p.prefix)
	if err != nil {
		return err
	}
	newest := entries[len(entries)-1]
	var old []Entry
	for _, e := range entries[:len(entries)-1] {
		if _, pinned := pins[e.Step]; !pinned && !keep(e.Step) {
			old = append(old, e)
		}
	}
	if len(old) == 0 {
		return nil
	}
	m, err := readManifest(ctx, p.store, newest.Ref)
	if err == nil {
		err = m.complete(ctx, p.store)
	}
	if err != nil {
		return fmt.Errorf("the newest is unreadable, nothing was deleted: %w", err)
	}
	dropped := map[string]int64{}
	for _, e := range old {
		if err := p.drop(ctx, e, dropped); err != nil {
			return fmt.Errorf("step %d: %w", e.Step, err)
		}
	}
	for _, e := range entries {
		if err := p.spare(ctx, e, dropped); err != nil {
			return fmt.Errorf("step %d: %w", e.Step, err)
		}
	}
	c := collector{store: p.store, root: p.root, clock: p.clock, only: dropped}
	_, err = c.collect(ctx)
	return err
}

// spare removes the shards of a remaining checkpoint from dropped.
func (p pruner) spare(ctx context.Context, e Entry, dropped map[string]int64) error {
	m, err := readManifest(ctx, p.store, e.Ref)
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, ErrCorrupt) || errors.Is(err, blob.ErrCorrupt) {
		return nil // dropped, or left to the collection
	}
	for _, ref := range m.refs() {
		delete(dropped, ref.Key)
	}
	return err
}

// drop deletes a manifest and adds the keys of its shards to dropped. A concurrent pin wins.
func (p pruner) drop(ctx context.Context, e Entry, dropped map[string]int64) error {
	m, err := readManifest(ctx, p.store, e.Ref)
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, ErrCorrupt) { // a damaged manifest names no shards
		return err
	}
	// A pin may put the manifest back; then every collection must have seen its shards.
	a, err := announce(ctx, p.store, p.prefix, m, p.clock)
	if err != nil {
		return err
	}
	_, lost, err := a.settle(ctx)
	if err != nil || len(lost) > 0 { // a pin could not put it back, so a later prune drops it
		return withdrawn(ctx, a, err)
	}
	if err := p.store.Delete(ctx, e.Ref.Key); err != nil {
		return err
	}
	_, err = p.store.Stat(ctx, pinKey(p.prefix, e.Step))
	switch {
	case errors.Is(err, blob.ErrNotExist):
		for _, ref := range m.refs() {
			dropped[ref.Key] = ref.Size
		}
		err = nil
	case m.Format > 0: // pinned, or not known to be unpinned
		err = errors.Join(err, p.putBack(context.WithoutCancel(ctx), e, m))
	}
	return errors.Join(err, a.withdraw(ctx))
}

// putBack stores a deleted manifest again.
func (p pruner) putBack(ctx context.Context, e Entry, m manifest) error {
	err := m.complete(ctx, p.store)
	if err == nil { // another prune deleted it first
		_, err = putManifestOnce(ctx, p.store, e.Ref.Key, m)
	}
	return err
}

// Pinned is a pin: why a checkpoint is kept until Unpin.
type Pinned struct {
	Step   int    `json:"step"`
	Reason string `json:"reason,omitempty"`
}

func pinKey(prefix string, step int) string {
	return path.Join(prefix, "pins", fmt.Sprintf("%06d.json", step))
}

// Pin keeps the checkpoint of a step under the prefix until Unpin. A second Pin replaces the
// reason. Errors: blob.ErrNotExist.
func Pin(ctx context.Context, store blob.Store, prefix string, step int, reason string) error {
	entries, err := List(ctx, store, prefix)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Step == step })
	if i < 0 {
		return fmt.Errorf("pin checkpoint of step %d: %w", step, blob.ErrNotExist)
	}
	m, err := readManifest(ctx, store, entries[i].Ref)
	if err != nil {
		return fmt.Errorf("pin checkpoint of step %d: %w", step, err)
	}
	if err := pin(ctx, store, prefix, m, reason, clock{}); err != nil {
		return fmt.Errorf("pin checkpoint of step %d: %w", step, err)
	}
	return nil
}

// pin writes the pin, then the manifest if a prune deleted it first.
func pin(ctx context.Context, store blob.Store, prefix string, m manifest, reason string, c clock) error {
	a, err := announce(ctx, store, prefix, m, c)
	if err != nil {
		return err
	}
	_, lost, err := a.settle(ctx)
	if err == nil {
		err = m.complete(ctx, store)
	}
	if err != nil {
		return withdrawn(ctx, a, err)
	}
	if _, err := blob.PutJSON(ctx, store, pinKey(prefix, m.Step), Pinned{Step: m.Step, Reason: reason}, blob.Always); err != nil {
		return err
	}
	if len(lost) == 0 {
		_, err = putManifestOnce(ctx, store, manifestKey(prefix, m.Step), m)
	} else if _, err = store.Stat(ctx, manifestKey(prefix, m.Step)); errors.Is(err, blob.ErrNotExist) {
		err = errors.Join(err, store.Delete(ctx, pinKey(prefix, m.Step))) // the checkpoint was pruned, and its shards may be deleted
	}
	return errors.Join(err, a.withdraw(ctx))
}

// Unpin lets the next prune delete the checkpoint of a step. A missing pin is not an error.
func Unpin(ctx context.Context, store blob.Store, prefix string, step int) error {
	return store.Delete(ctx, pinKey(prefix, step))
}

// Pins returns the pins under the prefix by step.
func Pins(ctx context.Context, store blob.Store, prefix string) (map[int]Pinned, error) {
	infos, err := store.List(ctx, path.Join(prefix, "pins")+"/")
	if err != nil {
		return nil, err
	}
	out := map[int]Pinned{}
	for _, info := range infos {
		var p Pinned
		err := blob.ReadJSON(ctx, store, info.Key, &p)
		if errors.Is(err, blob.ErrNotExist) {
			continue // unpinned meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.Key == pinKey(prefix, p.Step) {
			out[p.Step] = p
		}
	}
	return out, nil
}
