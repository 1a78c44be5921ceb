package chain

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// checkChain holds each manifest to the one after it, from the end on: what the
// summary names is certain, and each manifest that is certain names the one before.
func (v *verifier) checkChain() {
	entries := v.chain.Entries
	v.out.Manifests = len(entries)
	if len(entries) == 0 {
		if v.end != nil {
			v.damage(Finding{Key: v.layout.Chain().Closing(), Problem: Missing, Want: v.end.Seal, HeldBy: v.layout.Summary(), Text: "the summary names the chain, and no manifest is there"})
		}
		return
	}
	v.out.Head = v.chain.Head()
	v.describeChain()
	good := make([]bool, len(entries))
	for i := range entries {
		good[i] = v.checkEntry(&entries[i])
	}
	last := len(entries) - 1
	if v.end != nil {
		good[last] = v.checkSuccessor(entries[last], blob.Ref{Key: v.layout.Chain().Closing(), SHA256: v.end.Seal}, v.layout.Summary()) && good[last]
	}
	for i := last; i > 0; i-- {
		if good[i] {
			good[i-1] = v.checkSuccessor(entries[i-1], entries[i].Manifest.Previous, entries[i].Ref.Key) && good[i-1]
		}
	}
	if first := &entries[0]; good[0] && first.Facts.Kind != Opening {
		v.damage(Finding{Key: first.Manifest.Previous.Key, Problem: Missing, Want: first.Manifest.Previous.SHA256, HeldBy: first.Ref.Key, Text: "is the manifest before, and nothing is there"})
	}
	for i := range entries {
		if good[i] && (i == 0 || good[i-1]) {
			v.checkLink(entries, i)
		}
	}
	v.checkHead()
}

// describeChain says what the chain is about.
func (v *verifier) describeChain() {
	for i := range v.chain.Entries {
		e := &v.chain.Entries[i]
		if e.Damage != nil {
			continue
		}
		for _, m := range e.Manifest.MadeBy {
			v.out.MadeBy = AddMaker(v.out.MadeBy, m)
		}
		if e.Facts.Kind != Step {
			continue
		}
		if v.out.First == 0 {
			v.out.First = e.Facts.Step
		}
		v.out.Last = e.Facts.Step
		v.out.Steps++
	}
}

// checkEntry looks at a manifest alone.
func (v *verifier) checkEntry(e *Entry) bool {
	switch {
	case e.Damage != nil:
		v.damage(Finding{Key: e.Ref.Key, Problem: Damaged, Have: e.Ref.SHA256, Text: e.Damage.Error()})
		return false
	case e.Facts.Run != v.layout.RunID || keyOf(v.layout, e.Facts) != e.Ref.Key:
		v.damage(Finding{Key: e.Ref.Key, Problem: Misplaced, Have: e.Ref.SHA256,
			Text: fmt.Sprintf("is the manifest of run %q, %s %d", e.Facts.Run, e.Facts.Kind, e.Facts.Step)})
		return false
	default:
		return true
	}
}

// checkSuccessor compares a manifest with what the one after it names.
func (v *verifier) checkSuccessor(e Entry, want blob.Ref, by string) bool {
	switch {
	case want.Key != e.Ref.Key:
		v.damage(Finding{Key: want.Key, Problem: Missing, Want: want.SHA256, HeldBy: by, Text: fmt.Sprintf("%s names it, and nothing is there", by)})
		return true // it may be whole: the one that names it is gone
	case want.SHA256 != e.Ref.SHA256:
		if e.Damage == nil {
			v.damage(Finding{Key: e.Ref.Key, Problem: Damaged, Want: want.SHA256, Have: e.Ref.SHA256, HeldBy: by,
				Text: fmt.Sprintf("want sha256 %.12s, have %.12s: it was replaced", want.SHA256, e.Ref.SHA256)})
		}
		return false
	default:
		return true
	}
}

// checkLink makes the link of a manifest again.
func (v *verifier) checkLink(entries []Entry, i int) {
	before := ""
	if i > 0 {
		before = entries[i-1].Manifest.Link
	}
	if i > 0 && entries[i].Manifest.Previous.Key != entries[i-1].Ref.Key || i == 0 && entries[i].Facts.Kind != Opening {
		return // one between them is missing, which is said already
	}
	have, err := LinkOf(before, entries[i].Manifest.Facts)
	if err != nil || have != entries[i].Manifest.Link {
		v.damage(Finding{Key: entries[i].Ref.Key, Problem: Broken, Want: have, Have: entries[i].Manifest.Link,
			Text: fmt.Sprintf("its link is %.12s, and its facts after the manifest before give %.12s", entries[i].Manifest.Link, have)})
	}
}

// checkHead compares the chain with the head that the caller has noted.
func (v *verifier) checkHead() {
	if v.Options.Head == "" {
		return
	}
	for _, e := range v.chain.Entries {
		if strings.HasPrefix(e.Ref.SHA256, v.Options.Head) || strings.HasPrefix(e.Manifest.Link, v.Options.Head) {
			return
		}
	}
	v.damage(Finding{Key: v.layout.Dir(), Problem: Broken, Want: v.Options.Head, Have: v.out.Head.Seal, Text: "no manifest has the link or the seal that was noted: this is another run, or a part of one"})
}

// checkUnchained looks for steps that have a record and no manifest. While the run is open,
// the newest step may be one: its manifest is being written.
func (v *verifier) checkUnchained(ctx context.Context) error {
	_, names, err := v.store.ListFolder(ctx, v.layout.Steps())
	if err != nil {
		return err
	}
	chained := map[int]bool{}
	for _, e := range v.chain.Entries { // a damaged one stands for its step, too
		if step, ok := artifact.StepOf(v.layout, e.Ref.Key); ok {
			chained[step] = true
		}
	}
	var without []int
	for _, name := range names {
		if step, err := strconv.Atoi(name); err == nil && !chained[step] {
			without = append(without, step)
		}
	}
	recorded := make([]bool, len(without))
	err = artifact.Each(ctx, len(without), func(ctx context.Context, i int) error {
		_, err := v.store.Stat(ctx, v.layout.Step(without[i]).Log())
		recorded[i] = err == nil
		return ignoreGone(err)
	})
	for i, step := range without {
		newest := i == len(without)-1 && step > v.out.Last
		if recorded[i] && (!newest || v.end != nil) {
			v.damage(Finding{Key: v.layout.Step(step).Manifest(), Problem: Missing, Text: fmt.Sprintf("step %d has a record and no manifest", step)})
		}
	}
	return err
}
