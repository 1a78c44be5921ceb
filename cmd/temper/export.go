package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/ui"
)

// exportTimeout bounds one request of an export to a server.
const exportTimeout = 30 * time.Second

func exportCommand(p *config.Process) *cobra.Command {
	var format, out, mlflow, experiment string
	var from, to int
	cmd := &cobra.Command{
		Use: "export RUN", Short: "Write the series or the trajectories of a run for other programs: CSV, TensorBoard, Parquet, W&B, MLflow", Args: cobra.ExactArgs(1),
		Long: `Writes what a run has left so far; it may go on meanwhile.

  --format csv          the series, a line a step
  --format tensorboard  the series as an event file; --out is the folder
  --format parquet      the trajectories that are stored, in the columns in which verl dumps rollouts
  --format wandb        configuration and series as W&B stores a run that is offline, for wandb sync; --out is the folder
  --mlflow URL          the series to a server of MLflow; a run that is there goes on behind its last step.
                        MLFLOW_TRACKING_TOKEN is sent as a bearer token.

Weights are written by temper run export.`,
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "", "csv, tensorboard, parquet or wandb")
	flags.StringVarP(&out, "out", "o", "", "the file, or the folder for tensorboard and wandb")
	flags.StringVar(&mlflow, "mlflow", "", "address of a server of MLflow")
	flags.StringVar(&experiment, "experiment", "temper", "experiment of MLflow, or project of W&B")
	flags.IntVar(&from, "from", 1, "first step of the trajectories")
	flags.IntVar(&to, "to", math.MaxInt, "last step of the trajectories")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case (format == "") == (mlflow == ""):
			return cli.Usagef("want one of --format and --mlflow")
		case format != "" && out == "":
			return cli.Usagef("--out is missing: name the file, or the folder of event files")
		}
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		if mlflow != "" {
			m := export.MLflow{Address: mlflow, Experiment: experiment, Token: os.Getenv("MLFLOW_TRACKING_TOKEN"), Client: &http.Client{Timeout: exportTimeout}}
			id, sent, err := m.Export(cmd.Context(), r)
			if err != nil {
				return usersError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d steps of run %s sent, run %s of experiment %s\n", mlflow, sent, r.ID(), id, experiment)
			return err
		}
		what, err := exportFile(cmd, r, format, out, experiment, from, to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), what)
		return err
	}
	return cmd
}

// exportFile writes a file and says what is in it.
func exportFile(cmd *cobra.Command, r *history.Run, format, out, project string, from, to int) (string, error) {
	if format == "parquet" {
		n := 0
		err := replaceFile(out, func(w io.Writer) (err error) {
			n, err = export.Rollouts(cmd.Context(), r, from, to, w)
			return err
		})
		if err != nil {
			return "", usersError(err)
		}
		return fmt.Sprintf("%s: %d trajectories of run %s", out, n, r.ID()), nil
	}
	if format == "wandb" {
		folder, n, err := export.WandB(cmd.Context(), r, out, project)
		if err != nil {
			return "", usersError(err)
		}
		return fmt.Sprintf("%s: %d steps of run %s", folder, n, r.ID()), nil
	}
	records, err := r.Records(cmd.Context())
	if err != nil {
		return "", err
	}
	var data []byte
	switch format {
	case "csv":
		data, err = ui.SeriesCSV(records)
	case "tensorboard":
		out = filepath.Join(out, r.ID(), ui.EventFile(records, r.ID()))
		data = ui.TensorBoard(records)
		err = os.MkdirAll(filepath.Dir(out), 0o755)
	default:
		return "", cli.Usagef("--format: is %q, want csv, tensorboard, parquet or wandb", format)
	}
	if err == nil {
		err = replaceFile(out, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	if err != nil {
		return "", cli.Usage(err)
	}
	return fmt.Sprintf("%s: %d steps of run %s", out, len(records), r.ID()), nil
}

// replaceFile writes a file by fill. One that is there stays until the new one is whole; what is no
// file, such as /dev/stdout, is written to at once.
func replaceFile(path string, fill func(io.Writer) error) error {
	if there, err := filepath.EvalSymlinks(path); err == nil {
		path = there // not the link
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return writeTo(path, os.O_WRONLY, fill)
	}
	part := path + ".part"
	if err = writeTo(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fill); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part) // the error says more; it may not be there
	}
	return err
}

func writeTo(path string, flags int, fill func(io.Writer) error) error {
	file, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return cli.Usage(err)
	}
	w := bufio.NewWriter(file)
	err = fill(w)
	return cmp.Or(err, w.Flush(), file.Close())
}
