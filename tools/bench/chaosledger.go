package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/tools/bench/chaos"
)

// chaosReportCommand adds up ledgers.
func chaosReportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "report FILE...", Short: "Add up ledgers of one or more machines", Args: cobra.MinimumNArgs(1),
		Long: `Adds up the ledgers that --ledger wrote, also while they grow: kills by process, stage
of life and fail point, times from a kill to progress, and whatever differs. A trial
that is in several files counts once. Ends with code 1 when something is wrong.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var lines []chaos.Line
		for _, path := range args {
			more, err := chaos.ReadLedger(path)
			if err != nil {
				return cli.Usage(err)
			}
			lines = append(lines, more...)
		}
		report := chaos.SumUp(lines)
		var err error
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), report)
		} else {
			err = report.Text(cmd.OutOrStdout())
		}
		if err == nil && !report.Good() {
			err = fmt.Errorf("%d notes say what is wrong", len(report.Notes))
		}
		return err
	}
	return cmd
}

// newID names a line of a ledger.
func newID() string { return rand.Text() }

// buildLine names the version of this program, and the bytes of the binary under test.
func buildLine(binary string) (string, error) {
	f, err := os.Open(binary) //nolint:gosec // the binary that lies beside this program
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return buildinfo.Build() + " " + hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// machineLine names the machine and what decides the bits and the pace of a run on it.
func machineLine() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s, %d x %s", host, runtime.NumCPU(), processor())
}

// processor is the model of the processor, as far as the system says.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
