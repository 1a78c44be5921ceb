package runtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"path"
	"regexp"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Contents are the objects that a run left in the store, by key below its folder, without
// times.
type Contents map[string][]byte

// writersOwn matches the keys in which a process announces what it writes or deletes.
// A process that died leaves its announcements until they are collected.
var writersOwn = regexp.MustCompile(`^(checkpoints/(shards|pending)/|policies/[^/]+/pending/|retired/|head\.json)`)

// ReadContents loads what a run left, without shards of checkpoints: a crash may
// leave some that no manifest names.
func ReadContents(ctx context.Context, store blob.Store, run artifact.Layout) (Contents, error) {
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
		name = out.timelessName(name)
		out[name] = data
	}
	return out, nil
}

// timelessName takes the time out of the name of an event, and numbers events that
// differ in nothing else.
func (c Contents) timelessName(name string) string {
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

// Digest returns the SHA-256 of everything that a run left, without times.
func (c Contents) Digest() string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		of := sha256.Sum256(c[name])
		fmt.Fprintf(sum, "%s %x\n", name, of)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Difference is an object that two runs do not have in common.
type Difference struct {
	Name string `json:"name"`
	// Kind is missing, extra or changed.
	Kind string `json:"kind"`
	Bits int64  `json:"bits"`
}

// CompareContents lists where got differs from want, by name.
func CompareContents(want, got Contents) []Difference {
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

// differingBits counts the bits that differ, and all beyond the common length.
func differingBits(a, b []byte) int64 {
	n := int64(8 * (max(len(a), len(b)) - min(len(a), len(b))))
	for i := range min(len(a), len(b)) {
		n += int64(bits.OnesCount8(a[i] ^ b[i]))
	}
	return n
}
