package export

import (
	"fmt"
	"io"
	"text/tabwriter"

	"temper/internal/history"
)

// Usage prints the bytes of a run by kind.
func Usage(out io.Writer, u history.Usage) error {
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

// Checkpoints prints the checkpoints of a run with sft updates of SFT.
func Checkpoints(out io.Writer, sft int, checkpoints []history.Checkpoint) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tCURSOR\tSIZE\tEPOCH\tKEPT")
	for _, r := range checkpoints {
		step := fmt.Sprint(r.Step)
		if r.Cursor <= sft && sft > 0 {
			step = fmt.Sprintf("sft %d/%d", r.Cursor, sft)
		}
		if r.Damage != "" {
			fmt.Fprintf(t, "%s\t%d\t\t\tdamaged: %s\n", step, r.Cursor, r.Damage)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f MiB\t%d\t%s\n", step, r.Cursor, float64(r.Bytes)/(1<<20), r.Epoch, r.Kept)
	}
	return t.Flush()
}
