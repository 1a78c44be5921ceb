package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run/record"
)

// HTML is the format of a page, which Options.Page makes.
const HTML = "html"

// Options define what is exported and where to.
type Options struct {
	// Format is one of Formats.
	Format string
	// Out is a file, a folder for tables, tensorboard and wandb, or the URL of a server for
	// mlflow. Without it json and csv go to Stdout.
	Out    string
	Stdout io.Writer
	// First and Last bound the steps of trajectories and calls.
	First, Last int
	Problem     string // of the trajectories of json; "" is all
	// Project is the experiment of MLflow, or the project of W&B.
	Project string
	Token   string       // of MLflow
	Client  *http.Client // of MLflow
	Page    func(*history.Run) ([]byte, error)
}

// Formats lists the formats.
func Formats() []string {
	return []string{"json", "csv", HTML, "parquet", "tables", "tensorboard", "wandb", "mlflow"}
}

// Check finds what is wrong with the options alone.
func (o Options) Check() error {
	switch {
	case !slices.Contains(Formats(), o.Format):
		return fmt.Errorf("--format: is %q, want one of %s", o.Format, strings.Join(Formats(), ", "))
	case o.Out == "" && o.Format != "json" && o.Format != "csv":
		return errors.New("--out is missing: name the file, the folder or the URL")
	case o.Problem != "" && o.Format != "json":
		return errors.New("--problem is for --format json")
	}
	return nil
}

// Write exports a run and says what it wrote, "" for an export to Stdout.
func Write(ctx context.Context, r *history.Run, o Options) (about string, err error) {
	switch o.Format {
	case "mlflow":
		m := MLflow{Address: o.Out, Experiment: o.Project, Token: o.Token, Client: o.Client}
		id, sent, err := m.Export(ctx, r)
		return fmt.Sprintf("%s: %d steps of run %s sent, run %s of experiment %s", o.Out, sent, r.ID(), id, o.Project), err
	case "wandb":
		folder, n, err := WandB(ctx, r, o.Out, o.Project)
		return fmt.Sprintf("%s: %d steps of run %s", folder, n, r.ID()), err
	case "tables":
		if err := os.MkdirAll(o.Out, 0o755); err != nil { //nolint:gosec // as mkdir makes it
			return "", fault.New(fault.InvalidConfig, err)
		}
		names, err := Tables(ctx, r, o.First, o.Last, o.Out)
		return strings.Join(names, "\n"), err
	case "parquet", "json":
		n := 0
		err := o.file(o.Out, func(w io.Writer) (err error) {
			if o.Format == "json" {
				n, err = lines(ctx, r, o, w)
			} else {
				n, err = Rollouts(ctx, r, o.First, o.Last, w)
			}
			return err
		})
		return o.about(o.Out, fmt.Sprintf("%d trajectories of run %s", n, r.ID())), err
	default:
		return o.writeSeries(ctx, r)
	}
}

// about names the file that was written.
func (o Options) about(file, what string) string {
	if file == "" {
		return ""
	}
	return file + ": " + what
}

// file writes to a file, or to Stdout if name is empty.
func (o Options) file(name string, fill func(io.Writer) error) error {
	if name == "" {
		return fill(o.Stdout)
	}
	return ReplaceFile(name, fill)
}

// writeSeries writes a format of all series.
func (o Options) writeSeries(ctx context.Context, r *history.Run) (about string, err error) {
	records, err := r.Records(ctx)
	if err != nil {
		return "", err
	}
	out := o.Out
	var data []byte
	switch o.Format {
	case "csv":
		data, err = SeriesCSV(records)
	case HTML:
		data, err = o.Page(r)
	default:
		out = filepath.Join(out, r.ID(), EventFile(records, r.ID()))
		data = TensorBoard(records)
		err = os.MkdirAll(filepath.Dir(out), 0o755) //nolint:gosec // as mkdir makes it
		err = fault.New(fault.InvalidConfig, err)
	}
	if err == nil {
		err = o.file(out, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	return o.about(out, fmt.Sprintf("%d steps of run %s", len(records), r.ID())), err
}

// lines writes the stored trajectories of the steps as JSON lines, in whichever form they
// are stored, and returns how many there were.
func lines(ctx context.Context, r *history.Run, o Options, w io.Writer) (n int, err error) {
	e, err := r.Entry(ctx)
	if err != nil {
		return 0, err
	}
	last := o.Last
	if last == math.MaxInt {
		last = e.Step + 1 // the step under way may have some
	}
	for step := max(1, o.First); step <= min(last, e.Step+1); step++ {
		problems, err := r.Problems(ctx, step)
		if err != nil {
			return n, err
		}
		for _, id := range problems {
			if o.Problem != "" && o.Problem != id {
				continue
			}
			written, err := groupLines(ctx, r, step, id, w)
			if err != nil {
				return n, err
			}
			n += written
		}
	}
	if n == 0 {
		err = fault.Newf(fault.InvalidConfig, "run %s has no such trajectories: the steps were not sampled, or checkpoint.keep_trajectories has deleted them", r.ID())
	}
	return n, err
}

// groupLines writes the stored trajectories of a group as JSON lines.
func groupLines(ctx context.Context, r *history.Run, step int, problem string, w io.Writer) (n int, err error) {
	group, err := r.Group(ctx, step, problem)
	if err != nil {
		return 0, err
	}
	data, err := record.Lines(group)
	if err != nil {
		return 0, fmt.Errorf("problem %s: %w", problem, err)
	}
	_, err = w.Write(data)
	return len(group), err
}
