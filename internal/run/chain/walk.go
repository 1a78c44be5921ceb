package chain

import (
	"context"
	"errors"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// object is something that the chain holds, and what was found of it.
type object struct {
	want blob.Ref
	by   string // the key of what names it
	// have is the stored object; zero if there is none. It has no SHA256 if the bytes were
	// not read.
	have blob.Ref
}

func (o object) whole() bool {
	return o.have.Key != "" && o.have.Size == o.want.Size && (o.have.SHA256 == "" || o.have.SHA256 == o.want.SHA256)
}

// walk goes from the manifests to all that they hold.
type walk struct {
	store  blob.Store
	layout artifact.Layout
	depth  depth
	// withoutShards leaves out what all runs share.
	withoutShards bool
}

// depth tells which bytes are read.
type depth int

const (
	// depthSmall reads what may name other objects and what is small, and asks for the
	// size of the rest.
	depthSmall depth = iota
	// depthAll reads everything.
	depthAll
)

// smallBytes is the size up to which depthSmall reads an object.
const smallBytes = 16 << 10

// all finds every object of the chain, one manifest after another, and calls found for
// each. An object that several manifests hold was made again, and the last one counts.
func (w walk) all(ctx context.Context, c *Chain, found func(object)) error {
	shared := map[string]bool{} // what the manifests themselves hold, and what no step has for itself
	for i := range c.Entries {
		e := c.Entries[len(c.Entries)-1-i]
		if e.Damage != nil {
			continue
		}
		if err := w.entry(ctx, e, shared, found); err != nil {
			return err
		}
	}
	return nil
}

// entry finds the objects of one manifest.
func (w walk) entry(ctx context.Context, e Entry, shared map[string]bool, found func(object)) error {
	own := map[string]bool{}
	var todo []object
	add := func(ref blob.Ref, by string) {
		if shared[ref.Key] || own[ref.Key] || w.withoutShards && strings.HasPrefix(ref.Key, sharedShards) {
			return
		}
		if _, ofStep := artifact.StepOf(w.layout, ref.Key); ofStep && by != e.Ref.Key {
			own[ref.Key] = true
		} else {
			shared[ref.Key] = true
		}
		todo = append(todo, object{want: ref, by: by})
	}
	for _, ref := range e.Manifest.Holds {
		add(ref, e.Ref.Key)
	}
	for len(todo) > 0 {
		now := todo
		todo = nil
		inside := make([][]blob.Ref, len(now))
		err := artifact.Each(ctx, len(now), func(ctx context.Context, i int) (err error) {
			now[i].have, inside[i], err = w.look(ctx, now[i].want)
			return err
		})
		if err != nil {
			return err
		}
		for i, o := range now {
			found(o)
			for _, ref := range inside[i] {
				add(ref, o.want.Key)
			}
		}
	}
	return nil
}

// look finds out what is stored of an object, and which Refs it holds.
func (w walk) look(ctx context.Context, want blob.Ref) (have blob.Ref, inside []blob.Ref, err error) {
	if holdsRefs(w.layout, want.Key) {
		data, err := blob.ReadKey(ctx, w.store, want.Key)
		if err != nil {
			return blob.Ref{}, nil, ignoreUnreadable(err)
		}
		have = blob.RefOf(want.Key, data)
		if have == want {
			inside = refsIn(w.layout, data)
		}
		return have, inside, nil
	}
	if w.depth == depthAll || want.Size <= smallBytes {
		have, err = hashObject(ctx, w.store, want.Key)
		return have, nil, ignoreUnreadable(err)
	}
	info, err := w.store.Stat(ctx, want.Key)
	if err != nil {
		return blob.Ref{}, nil, ignoreUnreadable(err)
	}
	return blob.Ref{Key: want.Key, Size: info.Size}, nil, nil
}

// ignoreUnreadable takes what is not there, or is damaged for the store itself, for
// absent.
func ignoreUnreadable(err error) error {
	if errors.Is(err, blob.ErrCorrupt) {
		return nil
	}
	return ignoreGone(err)
}
