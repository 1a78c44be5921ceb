package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/cli"
	"temper/trainer/checkpoint"
)

func runDuCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "du RUN", Short: "Add up the bytes of a run in the store by kind, and for a step", Args: cobra.ExactArgs(1)}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, layout, err := openRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		u, err := usageOf(cmd.Context(), store, layout)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), u)
		}
		return u.print(cmd.OutOrStdout())
	}
	return cmd
}

// storeUsage is what a run takes in the store. Shards are counted for each
// checkpoint that names them, though those of several runs are stored once.
type storeUsage struct {
	Steps int        `json:"steps"` // that ended
	Kinds []kindSize `json:"kinds"`
}

// kindSize adds up the objects of one kind. Unit is what there is one of for each
// Count of them, empty where the kind does not grow with the run.
type kindSize struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
	Unit    string `json:"unit,omitempty"`
	Count   int    `json:"count,omitempty"`
}

func usageOf(ctx context.Context, store blob.Store, layout artifact.Layout) (storeUsage, error) {
	infos, err := store.List(ctx, layout.Dir()+"/")
	if err != nil {
		return storeUsage{}, err
	}
	kinds := []kindSize{
		{Kind: "policies", Unit: "policy"}, {Kind: "checkpoints", Unit: "checkpoint"}, {Kind: "trajectories", Unit: "step"},
		{Kind: "batches", Unit: "step"}, {Kind: "records", Unit: "step"}, {Kind: "evaluations", Unit: "evaluation"}, {Kind: "data"},
	}
	var u storeUsage
	sampled := map[string]bool{} // folders of trajectories that are left
	for _, i := range infos {
		name := strings.TrimPrefix(i.Key, layout.Dir()+"/")
		kind, counted := kindOf(name)
		k := &kinds[kind]
		k.Objects++
		k.Bytes += i.Size
		if kind == kindTrajectories {
			counted = !sampled[path.Dir(name)]
			sampled[path.Dir(name)] = true
		}
		if counted {
			k.Count++
		}
		if strings.HasPrefix(name, "steps/") && path.Base(name) == "step.json" {
			u.Steps++
		}
	}
	for i := range kinds {
		if kinds[i].Unit == "step" && i != kindTrajectories { // old ones may be deleted
			kinds[i].Count = u.Steps
		}
	}
	u.Kinds = kinds
	entries, err := checkpoint.List(ctx, store, layout.Checkpoints())
	if err != nil {
		return u, err
	}
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, store, e.Ref)
		if err != nil {
			return u, fmt.Errorf("checkpoint of cursor %d: %w", e.Step, err)
		}
		kinds[kindCheckpoints].Bytes += d.Size
	}
	return u, nil
}

// Places in the kinds of usageOf.
const (
	kindPolicies = iota
	kindCheckpoints
	kindTrajectories
	kindBatches
	kindRecords
	kindEvaluations
	kindData
)

// kindOf sorts a key of a run, given from the run's folder on. counted is true for
// the one key that each unit of the kind has.
func kindOf(name string) (kind int, counted bool) {
	top, rest, _ := strings.Cut(name, "/")
	switch {
	case top == "policies":
		return kindPolicies, path.Base(name) == "policy.json"
	case top == "checkpoints":
		return kindCheckpoints, path.Base(name) == "manifest.json"
	case top == "evals":
		return kindEvaluations, path.Ext(name) == ".jsonl" && !strings.Contains(rest, "/")
	case top == "data" || name == "tokenizer.json" || name == "chat_template.json":
		return kindData, false
	case top == "steps" && strings.Contains(name, "/trajectories/"):
		return kindTrajectories, false
	case top == "steps" && path.Base(name) == "batch.json":
		return kindBatches, false
	default:
		return kindRecords, false
	}
}

func (u storeUsage) print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "kind\tobjects\tMB\tkB for each\t\t")
	var objects int
	var bytes int64
	for _, k := range u.Kinds {
		each := "\t\t"
		if k.Count > 0 {
			each = fmt.Sprintf("%.1f\tof %d (%s)\t", float64(k.Bytes)/float64(k.Count)/1e3, k.Count, k.Unit)
		}
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%s\n", k.Kind, k.Objects, float64(k.Bytes)/1e6, each)
		objects += k.Objects
		bytes += k.Bytes
	}
	fmt.Fprintf(t, "all\t%d\t%.3f\t\t\t\n", objects, float64(bytes)/1e6)
	return t.Flush()
}
