package replay

import (
	"context"
	"fmt"
	"io"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run/chain"
)

// Print prints what a step that was made again came to, and the objects that are not equal.
func (r *Report) Print(out io.Writer) {
	counts := map[Verdict]int{}
	for _, o := range r.Objects {
		counts[o.Verdict]++
	}
	from := "from the start"
	if r.Checkpoint >= 0 {
		from = fmt.Sprintf("from the checkpoint of step %d", r.Checkpoint)
	}
	fmt.Fprintf(out, "step %d: %d of %d objects are equal; made in %s (%s by the run), after %s of loading %s\n", r.Step, counts[Equal], len(r.Objects),
		inSeconds(r.Took), inSeconds(r.Original), inSeconds(r.Prepared), from)
	for _, o := range r.Objects {
		if o.Verdict != Equal {
			fmt.Fprintf(out, "  %-8s %s: %s\n", o.Verdict, o.Key, o.Note)
		}
	}
	for _, k := range r.Kernels {
		fmt.Fprintf(out, "  other kernels, so that bits are held to bounds: %s\n", k)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "  note: %s\n", note)
	}
}

// DamagedSteps returns an error if steps did not come out as they are stored.
func DamagedSteps(reports []Report) error {
	n, objects := 0, 0
	for i := range reports {
		if d := len(reports[i].Damaged()); d > 0 {
			n++
			objects += d
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d steps did not come out as they are stored: %d objects differ or are missing (temper run verify --repair makes again what the chain holds)", n, len(reports), objects)
}

// Choose returns the steps of words, or if share is not "" a share of the steps that the run
// has made, chosen by seed, and at least one.
func Choose(ctx context.Context, store blob.Store, runID string, words []string, share string, seed uint64) ([]int, error) {
	if share == "" {
		return ParseSteps(words)
	}
	made, err := Made(ctx, store, runID)
	if err == nil && len(made) == 0 {
		err = fault.Newf(fault.InvalidConfig, "run %s has not made a step yet", runID)
	}
	if err != nil {
		return nil, err
	}
	part, err := ParseShare(share)
	return Sample(made, part, seed), err
}

// Steps makes steps again, one after another.
func (b *Bench) Steps(ctx context.Context, runID string, steps []int) ([]Report, error) {
	var out []Report
	for _, step := range steps {
		report, err := b.Step(ctx, runID, step)
		if _, damaged := blob.DamagedRef(err); damaged {
			return out, fmt.Errorf("make step %d again: %w: it is needed for the step; temper run verify --repair %s makes again what can be", step, err, runID)
		}
		if err != nil {
			return out, fmt.Errorf("make step %d again: %w", step, err)
		}
		out = append(out, report)
	}
	return out, nil
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Repairs is the result of repairing a run.
type Repairs struct {
	// Objects were damaged or missing.
	Objects []Repaired `json:"objects"`
}

// RepairAll looks for damage and makes it again, until a look finds nothing new: a damaged
// list hides what it names. With dry it puts nothing back.
func (b *Bench) RepairAll(ctx context.Context, store blob.Store, runID string, dry bool) (Repairs, error) {
	var out Repairs
	known := map[string]bool{}
	for {
		damaged, err := damagedRefs(ctx, store, runID, known)
		if err != nil || len(damaged) == 0 {
			return out, err
		}
		done, err := b.Repair(ctx, runID, damaged, dry)
		out.Objects = append(out.Objects, done...)
		if err != nil {
			return out, err
		}
	}
}

// damagedRefs are the objects of a run that are not as its chain says, except those
// that are known; they are known from then on.
func damagedRefs(ctx context.Context, store blob.Store, runID string, known map[string]bool) ([]blob.Ref, error) {
	report, err := chain.Verify(ctx, store, runID, chain.Options{All: true})
	if err != nil {
		return nil, err
	}
	var out []blob.Ref
	for _, d := range report.Damage {
		if known[d.Key] || d.Problem != chain.Damaged && d.Problem != chain.Missing {
			continue
		}
		known[d.Key] = true
		out = append(out, blob.Ref{Key: d.Key, SHA256: d.Want})
	}
	return out, nil
}

// Left counts the objects that were not put back.
func (r Repairs) Left() int {
	n := 0
	for _, o := range r.Objects {
		if !o.Done {
			n++
		}
	}
	return n
}

// Print prints the objects; dry says that none was put back.
func (r Repairs) Print(out io.Writer, dry bool) {
	for _, o := range r.Objects {
		state := " is left"
		if o.Done {
			state = " is whole again"
		}
		if dry {
			state = ""
		}
		fmt.Fprintf(out, "%s%s: %s\n", o.Key, state, o.How)
	}
	if len(r.Objects) == 0 {
		fmt.Fprintln(out, "nothing is damaged")
		return
	}
	if dry {
		fmt.Fprintf(out, "%d objects are damaged or missing; nothing was put back\n", len(r.Objects))
		return
	}
	fmt.Fprintf(out, "%d of %d objects are whole again\n", len(r.Objects)-r.Left(), len(r.Objects))
}
