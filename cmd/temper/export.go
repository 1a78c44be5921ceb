package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/proc/buildinfo"
	"temper/internal/service/runclient"
	"temper/ui"
)

// exportTimeout bounds one request of an export to a server.
const exportTimeout = 30 * time.Second

func exportCommand(p *config.Process) *cobra.Command {
	o := export.Options{}
	cmd := &cobra.Command{
		Use: "export RUN --format FORMAT", Short: "Write what a run has left for other programs: JSON, CSV, Parquet, HTML, TensorBoard, W&B, MLflow", Args: cobra.ExactArgs(1),
		Long: `Writes what a run has left so far; the run may continue meanwhile. --out names the file, or the folder where it says so.

  json         the trajectories, a line each, to standard output without --out
  csv          the series, a line a step, to standard output without --out
  html         a page with the story of the run, which needs no other file and prints on paper
  parquet      the trajectories in the columns in which verl dumps rollouts
  tables       trajectories, calls of tools, series, evaluations and events as Parquet, a file each; --out is a folder
  tensorboard  the series as an event file; --out is a folder
  wandb        configuration and series as W&B stores a run that is offline, for wandb sync; --out is a folder
  mlflow       the series, to the server of MLflow whose URL is --out; a run that is there continues after its last
               step. MLFLOW_TRACKING_TOKEN is sent as a bearer token.

DuckDB answers questions in SQL over tables:

  temper export RUN --format tables -o tables
  duckdb -c "SELECT stop_reason, count(*), avg(score) FROM 'tables/trajectories.parquet' WHERE step > 20 GROUP BY 1"

Weights are written by temper run export.`,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Format, "format", "", "json, csv, html, parquet, tables, tensorboard, wandb or mlflow")
	flags.StringVarP(&o.Out, "out", "o", "", "file, folder or URL")
	flags.StringVar(&o.Project, "experiment", "temper", "experiment of MLflow, or project of W&B")
	flags.IntVar(&o.First, "from", 1, "first step of the trajectories")
	flags.IntVar(&o.Last, "to", math.MaxInt, "last step of the trajectories")
	flags.StringVar(&o.Problem, "problem", "", "with json, the trajectories of this problem alone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.Check(); err != nil {
			return cli.Usage(err)
		}
		r, err := runclient.Find(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		o.Stdout, o.Token, o.Client = cmd.OutOrStdout(), os.Getenv("MLFLOW_TRACKING_TOKEN"), &http.Client{Timeout: exportTimeout}
		if o.Format == export.HTML {
			o.Page = func(r *history.Run) ([]byte, error) { return ui.Report(cmd.Context(), r, buildinfo.Line()) }
		}
		about, err := export.Write(cmd.Context(), r, o)
		if err == nil && about != "" {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), about)
		}
		return err
	}
	return cmd
}
