package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Options of Verify.
type Options struct {
	// All reads every byte, and lists what the chain does not hold. Without it, large
	// objects are asked for their size alone.
	All bool
	// WithoutShards leaves the shards of checkpoints and policies to checkpoint.Verify, which knows
	// more of them.
	WithoutShards bool
	// Head is a link or a seal of the run that the caller has noted, or the beginning of
	// one. A chain without it is another one.
	Head string
	// CanRemake reports whether the object of a key can be made again; nil if none can.
	CanRemake func(key string) bool
}

// Problem says what is wrong with an object.
type Problem string

// The problems that Verify finds.
const (
	Damaged   Problem = "damaged"   // other bytes than the chain says
	Missing   Problem = "missing"   // the chain holds it, and no note says that it was deleted
	Broken    Problem = "broken"    // a manifest that does not follow from the one before
	Misplaced Problem = "misplaced" // a manifest of another run or step
	// Changed objects may change after the end, Later ones came after the newest
	// manifest. Both are no damage.
	Changed Problem = "changed"
	Later   Problem = "later"
)

// Finding is an object that is not as the chain says, in words for people.
type Finding struct {
	Key     string  `json:"key"`
	Problem Problem `json:"problem"`
	// Want and Have are sums, or sizes where sums say nothing.
	Want string `json:"want,omitempty"`
	Have string `json:"have,omitempty"`
	Text string `json:"text"`
	// HeldBy is what names the object: a manifest, or a document that one holds.
	HeldBy string `json:"held_by,omitempty"`
	// CanRemake is true for an object that can be made again.
	CanRemake bool `json:"can_remake,omitempty"`
}

// String is the finding in one line.
func (f Finding) String() string {
	out := fmt.Sprintf("%s: %s: %s", f.Key, f.Problem, f.Text)
	if f.CanRemake {
		out += "; it can be made again"
	}
	return out
}

// Report is what Verify found.
type Report struct {
	RunID string `json:"run_id"`
	// First and Last are the first and the last step of the chain, Steps how many there
	// are.
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
	Steps int `json:"steps"`
	// Ended is true for a run with a summary, whose chain is complete.
	Ended     bool `json:"ended"`
	Manifests int  `json:"manifests"`
	Head      Head `json:"head"`
	// Objects are held by the chain, and Bytes were read of them.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Deleted counts objects that are gone and whose deletion is noted in the chain.
	Deleted int     `json:"deleted"`
	MadeBy  []Maker `json:"made_by,omitempty"`
	// Damage is what is wrong, Remarks are what is not, but worth a line.
	Damage  []Finding `json:"damage,omitempty"`
	Remarks []Finding `json:"remarks,omitempty"`
}

// Verify compares the stored objects of a run with its chain. Damage is no error: the
// report lists it. The run may continue meanwhile.
func Verify(ctx context.Context, store blob.Store, runID string, o Options) (Report, error) {
	v := verifier{Options: o, store: store, layout: artifact.Layout{RunID: runID}, held: map[string]bool{}, out: Report{RunID: runID}}
	err := v.verify(ctx)
	if err != nil {
		return v.out, fmt.Errorf("verify run %s: %w", runID, err)
	}
	byKey := func(a, b Finding) int { return cmp.Compare(a.Key, b.Key) }
	slices.SortStableFunc(v.out.Damage, byKey)
	slices.SortStableFunc(v.out.Remarks, byKey)
	return v.out, nil
}

type verifier struct {
	Options
	store  blob.Store
	layout artifact.Layout
	chain  *Chain
	end    *End            // of the summary; nil while there is none
	held   map[string]bool // keys that the chain holds
	out    Report
}

func (v *verifier) verify(ctx context.Context) error {
	// The summary first: a run that ends meanwhile has no closing yet, rather than none.
	if err := v.readEnd(ctx); err != nil {
		return err
	}
	var err error
	if v.chain, err = Load(ctx, v.store, v.layout.RunID); err != nil {
		return err
	}
	v.checkChain()
	if err := v.checkUnchained(ctx); err != nil {
		return err
	}
	if err := v.checkObjects(ctx); err != nil {
		return err
	}
	if err := v.checkState(ctx); err != nil || !v.All {
		return err
	}
	return v.listLater(ctx)
}

// damage adds a finding.
func (v *verifier) damage(f Finding) {
	made := f.Key
	if strings.HasPrefix(made, sharedShards) {
		made = f.HeldBy // a shard is made with what names it
	}
	f.CanRemake = v.CanRemake != nil && (f.Problem == Damaged || f.Problem == Missing) && v.CanRemake(made)
	v.out.Damage = append(v.out.Damage, f)
}

// readEnd reads what the summary says of the chain.
func (v *verifier) readEnd(ctx context.Context) error {
	key := v.layout.Summary()
	data, err := blob.ReadKey(ctx, v.store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	v.out.Ended = true
	var summary struct {
		Proof *End `json:"proof"`
	}
	err = json.Unmarshal(data, &summary)
	if err == nil && summary.Proof == nil {
		err = errors.New("it names no chain")
	}
	if err == nil {
		err = checkDigest(data)
	}
	if err != nil {
		v.damage(Finding{Key: key, Problem: Damaged, Text: err.Error()})
		return nil
	}
	v.end = summary.Proof
	return nil
}

// checkObjects looks at everything that the chain holds.
func (v *verifier) checkObjects(ctx context.Context) error {
	w := walk{store: v.store, layout: v.layout, withoutShards: v.WithoutShards}
	if v.All {
		w.depth = depthAll
	}
	var absent []object
	err := w.all(ctx, v.chain, func(o object) {
		if v.All {
			v.held[o.want.Key] = true
		}
		v.out.Objects++
		if o.have.SHA256 != "" {
			v.out.Bytes += o.have.Size
		}
		switch {
		case o.whole():
		case o.have.Key == "":
			absent = append(absent, o)
		default:
			v.damage(Finding{Key: o.want.Key, Problem: Damaged, Want: o.want.SHA256, Have: o.have.SHA256, HeldBy: o.by,
				Text: fmt.Sprintf("want %s, have %s", describe(o.want), describe(o.have))})
		}
	})
	if err != nil {
		return err
	}
	deleted, err := readNotes(ctx, v.store, v.layout, v.chain) // after the walk: an open run deletes more
	for _, o := range absent {
		if deleted.cover(o.want.Key) {
			v.out.Deleted++
			continue
		}
		v.damage(Finding{Key: o.want.Key, Problem: Missing, Want: o.want.SHA256, HeldBy: o.by,
			Text: fmt.Sprintf("want %d bytes sha256 %.12s, and nothing is there", o.want.Size, o.want.SHA256)})
	}
	return err
}

func describe(ref blob.Ref) string {
	if ref.SHA256 == "" {
		return fmt.Sprintf("%d bytes", ref.Size)
	}
	return fmt.Sprintf("%d bytes sha256 %.12s", ref.Size, ref.SHA256)
}

// checkState compares what may change with how it was at the end.
func (v *verifier) checkState(ctx context.Context) error {
	if len(v.chain.Entries) == 0 {
		return nil
	}
	for _, want := range v.chain.Entries[len(v.chain.Entries)-1].Manifest.State {
		have, err := hashObject(ctx, v.store, want.Key)
		if err = ignoreUnreadable(err); err != nil {
			return err
		}
		if have != want {
			v.out.Remarks = append(v.out.Remarks, Finding{Key: want.Key, Problem: Changed, Want: want.SHA256, Have: have.SHA256,
				Text: "is not what it was when the run ended: a trainer has had the run since, or somebody changed it"})
		}
	}
	return nil
}

// listLater lists the objects of the run that the chain does not hold: those that came
// after its newest manifest. A damaged manifest holds nothing, so there is no such list
// beside it.
func (v *verifier) listLater(ctx context.Context) error {
	if len(v.chain.Entries) == 0 || slices.ContainsFunc(v.chain.Entries, func(e Entry) bool { return e.Damage != nil }) {
		return nil
	}
	infos, err := v.store.List(ctx, v.layout.Dir()+"/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if v.held[info.Key] || mutable(v.layout, info.Key) || v.layout.Chain().Contains(info.Key) || v.layout.Chain().Omits(info.Key) {
			continue
		}
		v.out.Remarks = append(v.out.Remarks, Finding{Key: info.Key, Problem: Later, Have: fmt.Sprint(info.Size),
			Text: fmt.Sprintf("%d bytes that no manifest holds", info.Size)})
	}
	return nil
}
