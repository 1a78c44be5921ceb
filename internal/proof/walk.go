package proof

import (
	"context"
	"errors"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// object is something that the chain holds, and what was found of it.
type object struct {
	want blob.Ref
	by   string // the key of what names it
	// have is what is stored; zero where nothing is. It has no SHA256 where the bytes
	// were not read.
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

// depth says which bytes are read.
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

// all finds every object of the chain. Of an object that several manifests hold the
// last one counts: it was made again.
func (w walk) all(ctx context.Context, c *Chain) ([]object, error) {
	seen := map[string]bool{}
	var found []object
	add := func(ref blob.Ref, by string) {
		if !seen[ref.Key] && !(w.withoutShards && strings.HasPrefix(ref.Key, sharedShards)) {
			seen[ref.Key] = true
			found = append(found, object{want: ref, by: by})
		}
	}
	for i := len(c.Entries) - 1; i >= 0; i-- {
		if c.Entries[i].Damage != nil {
			continue
		}
		for _, ref := range c.Entries[i].Manifest.Holds {
			add(ref, c.Entries[i].Ref.Key)
		}
	}
	for from := 0; from < len(found); {
		next := found[from:]
		inside := make([][]blob.Ref, len(next))
		err := artifact.Each(ctx, len(next), func(ctx context.Context, i int) (err error) {
			next[i].have, inside[i], err = w.look(ctx, next[i].want)
			return err
		})
		if err != nil {
			return nil, err
		}
		from = len(found)
		for i := range inside {
			for _, ref := range inside[i] {
				add(ref, next[i].want.Key)
			}
		}
	}
	return found, nil
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
