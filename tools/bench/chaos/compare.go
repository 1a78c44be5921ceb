package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"path"
	"regexp"
	"slices"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// Contents is what a run left in the store, by key below its folder, without
// what the clock put there.
type Contents map[string][]byte

// writersOwn matches the keys that say which process wrote, or is about to write or to
// delete: a writer that died leaves its announcement until it is collected, and who
// goes on with its deletions notes what is left of them.
var writersOwn = regexp.MustCompile(`^(checkpoints/(shards|pending)/|policies/[^/]+/pending/|retired/|head\.json)`)

// Read loads what a run left. Shards of checkpoints are left out: a crash may
// leave some that no manifest names; those that one names are checked by loading it.
func Read(ctx context.Context, store blob.Store, run artifact.Layout) (Contents, error) {
	infos, err := store.List(ctx, run.Dir()+"/")
	if err != nil {
		return nil, err
	}
	out := Contents{}
	for _, info := range infos {
		name := strings.TrimPrefix(info.Key, run.Dir()+"/")
		if artifact.Aside(info.Key) || writersOwn.MatchString(name) {
			continue
		}
		data, err := blob.ReadKey(ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		if data, err = artifact.Timeless(name, data); err != nil {
			return nil, fmt.Errorf("%s: %w", store.Locate(info.Key), err)
		}
		name = out.unclocked(name)
		out[name] = data
	}
	return out, nil
}

// unclocked takes the time out of the name of an event; events that differ in
// nothing else are counted.
func (c Contents) unclocked(name string) string {
	if path.Dir(name) != "events" {
		return name
	}
	_, rest, _ := strings.Cut(path.Base(name), "-")
	for n := 1; ; n++ {
		name = fmt.Sprintf("events/%s#%d", rest, n)
		if _, taken := c[name]; !taken {
			return name
		}
	}
}

// Difference is an object that two runs do not have in common.
type Difference struct {
	Name string `json:"name"`
	// Kind is missing, extra or changed.
	Kind string `json:"kind"`
	Bits int64  `json:"bits"`
}

// Compare lists where got differs from want, by name.
func Compare(want, got Contents) []Difference {
	var out []Difference
	for name, a := range want {
		b, ok := got[name]
		switch {
		case !ok:
			out = append(out, Difference{name, "missing", int64(8 * len(a))})
		case !bytes.Equal(a, b):
			out = append(out, Difference{name, "changed", differingBits(a, b)})
		}
	}
	for name, b := range got {
		if _, ok := want[name]; !ok {
			out = append(out, Difference{name, "extra", int64(8 * len(b))})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// differingBits counts those of the common length and all beyond it.
func differingBits(a, b []byte) int64 {
	n := int64(8 * (max(len(a), len(b)) - min(len(a), len(b))))
	for i := range min(len(a), len(b)) {
		n += int64(bits.OnesCount8(a[i] ^ b[i]))
	}
	return n
}
