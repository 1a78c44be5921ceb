package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/trainerbench"
	"temper/trainer/estimate"
)

// measureEnv marks the process that makes the step, and nothing else before it.
const measureEnv = "TEMPER_MEASURE_STEP"

// ComparePlan makes the step of a plan and prints its peak beside the estimate.
// The step is made by this very command line in a process of its own, whose memory
// nothing else has touched.
func ComparePlan(cmd *cobra.Command, r estimate.Request, s estimate.Summary, asJSON bool) error {
	if os.Getenv(measureEnv) != "" {
		m, err := trainerbench.MeasureMemory(cmd.Context(), trainerbench.MemoryStep{Model: r.Model, Rows: r.Rows, Length: r.Length, Remat: r.Remat, Repeat: 3})
		if err != nil {
			return err
		}
		return cli.PrintJSON(cmd.OutOrStdout(), m)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	child := exec.CommandContext(cmd.Context(), self, os.Args[1:]...) //nolint:gosec // this very command once more
	child.Env = append(os.Environ(), measureEnv+"=1")
	child.Stderr = cmd.ErrOrStderr()
	out, err := child.Output()
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	var m trainerbench.Memory
	if err := json.Unmarshal(out, &m); err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	c := struct {
		Predicted int64   `json:"predicted"`
		Measured  int64   `json:"measured"`
		Error     float64 `json:"error"`
	}{s.Report.Peak, m.Peak, float64(s.Report.Peak)/float64(m.Peak) - 1}
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), c)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%.3g million parameters, %d x %d tokens, remat %v: predicted %.1f MB, measured %.1f MB, %+.1f %%\n",
		float64(s.Parameters)/1e6, r.Rows, r.Length, r.Remat, float64(c.Predicted)/1e6, float64(c.Measured)/1e6, 100*c.Error)
	return nil
}
