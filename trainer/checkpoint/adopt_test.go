package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
)

// TestAdoptSharesTheShards: the child has the parent's state and nothing is
// copied; the parent may go, and repeating it changes nothing.
func TestAdoptSharesTheShards(t *testing.T) {
	s := memblob.New()
	want := state(1)
	want.About = checkpoint.About{Run: "r", ConfigSHA256: "abc", Stage: 1}
	src := save(t, s, 7, want)
	save(t, s, 8, state(2))
	before := keys(t, s, "cas/")
	for range 2 {
		ref, err := checkpoint.Adopt(t.Context(), s, src, "runs/child/ckpt")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(keys(t, s, "cas/"), before); diff != "" {
			t.Errorf("shards: got -, want +\n%s", diff)
		}
		d, err := checkpoint.Describe(t.Context(), s, ref)
		if err != nil || !d.Adopted || d.About.Run != "r" || d.Step != 7 {
			t.Errorf("described %+v, error %v", d, err)
		}
	}
	if err := checkpoint.Prune(t.Context(), s, "runs", "runs/r/ckpt", func(int) bool { return false }); err != nil {
		t.Fatal(err)
	}
	entries, err := checkpoint.List(t.Context(), s, "runs/child/ckpt")
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d checkpoints of the child, error %v", len(entries), err)
	}
	step, got, err := checkpoint.Load(t.Context(), s, entries[0].Ref)
	if diff := cmp.Diff(want, got, byName); err != nil || step != 7 || diff != "" {
		t.Errorf("step %d, error %v, want (-) got (+)\n%s", step, err, diff)
	}
	if _, err := checkpoint.Adopt(t.Context(), s, src, "runs/late/ckpt"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("adopting a pruned checkpoint: %v, want ErrNotExist", err)
	}
	if left := keys(t, s, "runs/late/"); len(left) != 0 {
		t.Errorf("a refused adoption leaves %v", left)
	}
}
