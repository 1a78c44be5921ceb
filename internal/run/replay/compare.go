package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"path"
	"reflect"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
)

// compare holds what is stored of the step against what was made.
func (m *making) compare(ctx context.Context) ([]Object, error) {
	keys := map[string]bool{}
	for _, prefix := range m.objects() {
		for _, store := range []blob.Store{m.base, m.scratch} {
			infos, err := store.List(ctx, prefix)
			if err != nil {
				return nil, err
			}
			for _, info := range infos {
				keys[info.Key] = !m.isPassing(info.Key)
			}
		}
	}
	var out []Object
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !keys[key] {
			continue
		}
		o, err := m.compareKey(ctx, key)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// isPassing is true for what the step does not leave: the records of shards, which its
// batch replaces, and its manifest, which is held to the chain.
func (m *making) isPassing(key string) bool {
	return m.layout.Chain().Omits(key) || m.layout.Chain().Contains(key)
}

func (m *making) compareKey(ctx context.Context, key string) (Object, error) {
	out := Object{Key: key, Verdict: Equal}
	stored, there, err := read(ctx, m.base, key)
	if err != nil {
		return out, err
	}
	made, came, err := read(ctx, m.scratch, key)
	switch {
	case err != nil:
		return out, err
	case !came:
		out.Verdict, out.Note = Differs, "the step does not make it"
	case !there:
		out.Verdict, out.Note = m.absent(key)
	case m.kept[key] != "":
		out.Verdict, out.Note = Kept, m.kept[key]
	case m.far[key]:
		out.Verdict, out.Note = Differs, m.close[key]
	case m.close[key] != "":
		out.Verdict, out.Note = Close, m.close[key]
	default:
		if out.Note = difference(key, stored, made); out.Note != "" {
			out.Verdict = Differs
		}
		if out.Note != "" && len(m.kernels) > 0 {
			out.Verdict, out.Note = bounds{m}.judgeWithin(ctx, key, stored, made)
		}
	}
	return out, nil
}

func read(ctx context.Context, store blob.Store, key string) (data []byte, ok bool, err error) {
	data, err = blob.ReadKey(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// absent judges an object that is made and not stored.
func (m *making) absent(key string) (Verdict, string) {
	cfg := m.newest.Newest().Checkpoint
	switch {
	case cfg.KeepTrajectories > 0 && strings.HasPrefix(key, m.layout.Step(m.step).Groups()+"/"):
		return Deleted, "checkpoint.keep_trajectories; it can be made again"
	case cfg.KeepPolicies > 0 && strings.HasPrefix(key, path.Dir(m.layout.Policy(0).Ref())+"/"):
		return Deleted, "checkpoint.keep_policies; it can be made again"
	default:
		return Missing, "it is not in the store; it can be made again"
	}
}

// difference reports where two contents of a key differ, "" for nowhere. Times and
// writers do not count.
func difference(key string, stored, made []byte) string {
	if bytes.Equal(stored, made) {
		return ""
	}
	if path.Ext(key) == ".jsonl" {
		return lineDifference(asLines(stored), asLines(made))
	}
	if path.Ext(key) != ".json" {
		return byteDifference(stored, made)
	}
	a, err := artifact.Timeless(key, stored)
	if err != nil {
		return fmt.Sprintf("what is stored is no JSON: %v", err)
	}
	b, err := artifact.Timeless(key, made)
	if err != nil {
		return err.Error() // cannot be: it was made here
	}
	if bytes.Equal(a, b) {
		return ""
	}
	return cmp.Or(jsonDifference(a, b), byteDifference(a, b))
}

// asLines is a compact record as lines, and anything else as it is.
func asLines(data []byte) []byte {
	if !record.IsCompact(data) {
		return data
	}
	trajectories, err := record.Decode(data)
	if err != nil {
		return data
	}
	lines, err := record.Lines(trajectories)
	if err != nil {
		return data
	}
	return lines
}

// lineDifference names the first line that differs.
func lineDifference(stored, made []byte) string {
	a, b := bytes.SplitAfter(stored, []byte("\n")), bytes.SplitAfter(made, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if bytes.Equal(a[i], b[i]) {
			continue
		}
		return fmt.Sprintf("line %d, %s", i+1, cmp.Or(jsonDifference(a[i], b[i]), byteDifference(a[i], b[i])))
	}
	return fmt.Sprintf("has %d lines, and the step makes %d", len(a)-1, len(b)-1)
}

func byteDifference(stored, made []byte) string {
	n, first := 8*(max(len(stored), len(made))-min(len(stored), len(made))), min(len(stored), len(made))
	for i := range min(len(stored), len(made)) {
		if stored[i] != made[i] {
			first = min(first, i)
			n += bits.OnesCount8(stored[i] ^ made[i])
		}
	}
	return fmt.Sprintf("%d bits, the first in byte %d of %d", n, first, len(stored))
}

// jsonDifference names the first value that differs, "" when it finds none.
func jsonDifference(stored, made []byte) string {
	decode := func(data []byte) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return v, d.Decode(&v)
	}
	var a, b any
	var err error
	if a, err = decode(stored); err != nil {
		return fmt.Sprintf("is no JSON: %v", err)
	}
	if b, err = decode(made); err != nil {
		return ""
	}
	return valueDifference("", a, b)
}

func valueDifference(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		all := maps.Clone(a)
		maps.Copy(all, b)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if where := valueDifference(strings.TrimPrefix(at+"."+key, "."), a[key], b[key]); where != "" {
				return where
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			if where := valueDifference(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); where != "" {
				return where
			}
		}
		return ""
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return at + " " + shown(a) + ", and the step makes " + shown(b)
}

// shown is a value for people. Texts are left out: a policy may have written them.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "is absent"
	case json.Number, float64, bool:
		return fmt.Sprintf("is %v", v)
	case []any:
		return fmt.Sprintf("has %d elements", len(v))
	case string:
		return fmt.Sprintf("has %d bytes of text", len(v))
	default:
		return "is something else"
	}
}
