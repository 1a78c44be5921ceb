package history

import (
	"context"
	"fmt"
	"io"
	"path"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/trainer/checkpoint"
)

// Verified is the result of a check of all bytes of a store.
type Verified struct {
	checkpoint.Verified
	Runs []chain.Report `json:"runs"`
	// Refused tells which runs another build has stored in a form that this one does not read.
	Refused []string `json:"refused,omitempty"`
}

// VerifyStore reads all shards of checkpoints and policies, and what else the runs have stored.
func VerifyStore(ctx context.Context, store blob.Store, folder string, runs []string) (Verified, error) {
	var out Verified
	var err error
	if out.Verified, err = checkpoint.Verify(ctx, store, folder); err != nil {
		return out, err
	}
	for _, id := range runs {
		if _, _, err := run.ReadOpened(ctx, store, id); fault.Of(err) == fault.InvalidConfig {
			out.Refused = append(out.Refused, err.Error())
			continue
		}
		report, err := chain.Verify(ctx, store, id, chain.Options{All: true, WithoutShards: true})
		if err != nil {
			return out, err
		}
		out.Runs = append(out.Runs, report)
	}
	return out, nil
}

// Print prints what was found.
func (v Verified) Print(out io.Writer) error {
	printVerified(out, v.Verified)
	for _, why := range v.Refused {
		fmt.Fprintln(out, why)
	}
	for _, r := range v.Runs {
		if r.Manifests == 0 {
			fmt.Fprintf(out, "run %s has no chain, so that nothing but its checkpoints can be checked\n", r.RunID)
			continue
		}
		if err := r.Print(out); err != nil {
			return err
		}
	}
	return nil
}

// Err returns an error if there is damage.
func (v Verified) Err() error {
	if n := len(v.Damaged); n > 0 {
		return fmt.Errorf("%d objects are damaged: a run continues from its newest whole checkpoint by itself; "+
			"bring the objects back from a copy of the store, or delete the manifests that name them", n)
	}
	n := 0
	for _, r := range v.Runs {
		n += len(r.Damage)
	}
	if n > 0 {
		return fmt.Errorf("%d objects are not what the chain of their run says: bring them back from a copy of the store", n)
	}
	if n := len(v.Refused); n > 0 {
		return fmt.Errorf("%d runs were not checked: builds of other formats stored them", n)
	}
	return nil
}

func printVerified(out io.Writer, v checkpoint.Verified) {
	fmt.Fprintf(out, "%d checkpoints, %d shards of %.1f MiB; %d damaged\n", v.Checkpoints, v.Shards, float64(v.Bytes)/(1<<20), len(v.Damaged))
	for _, d := range v.Damaged {
		fmt.Fprintf(out, "%s: %s\n", d.Key, d.Problem)
		for _, manifest := range d.Checkpoints {
			fmt.Fprintf(out, "  is part of %s\n", path.Dir(manifest))
		}
	}
}
