package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/buildinfo"
	"temper/internal/chaos"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/failpoint"
	"temper/trainer/checkpoint"
)

// chaosOptions say what `temper bench chaos` does.
type chaosOptions struct {
	submission
	runs, kills int
	seed        uint64
	victims     []string
	points      []string
	dir         string
	keep        bool
	asJSON      bool
	python      string
	store       string
	timeout     time.Duration
}

func benchChaosCommand() *cobra.Command {
	var o chaosOptions
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill processes in the middle of runs and compare their bits with an undisturbed one",
		Long: `Carries out a run undisturbed, then again and again while it kills -9 processes of the
service at random moments, the supervisor among them, and compares all that the
runs left in their stores. The seed decides who is killed after how much of a run.
Ends with code 1 when a bit differs, a prompt is lost or doubled, a checkpoint is
torn, a process is left behind or a run does not end.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "configs/ci.yaml", "run configuration (YAML)")
	f.StringArrayVar(&o.set, "set", nil, "key=value over the configuration; repeatable")
	f.IntVar(&o.runs, "runs", 20, "disturbed runs")
	f.IntVar(&o.kills, "kills", 5, "kills of each run")
	f.Uint64Var(&o.seed, "seed", 1, "decides victims and moments")
	f.StringSliceVar(&o.victims, "victims", nil, "who is killed; default is everybody: "+fmt.Sprint(victimNames(chaos.Victims()))+", and s3d with --store s3d:")
	f.StringSliceVar(&o.points, "points", nil, "fail points that end their process once in a run, beside the kills; all = every one; dealt out over the runs")
	f.StringVar(&o.dir, "dir", "", "folder of the homes; default is a temporary one")
	f.BoolVar(&o.keep, "keep", false, "keep the homes of good runs, too")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.python, "python", config.DefaultProcess().Python, "interpreter that the sandbox runs (TEMPER_PYTHON)")
	f.StringVar(&o.store, "store", "", "URL below which each run gets a store of its own, or s3d://127.0.0.1:0 for an S3 server of each run; default is files in its home")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "after which a run is taken for one that does not end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.bench(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

func victimNames(victims []chaos.Victim) []string {
	var names []string
	for _, v := range victims {
		names = append(names, v.Name)
	}
	return names
}

// servesStore says whether each run has an S3 server of its own.
func (o *chaosOptions) servesStore() bool {
	return strings.HasPrefix(o.store, string(config.StoreS3D)+":")
}

// chosen are the victims that were asked for.
func (o *chaosOptions) chosen() ([]chaos.Victim, error) {
	all := chaos.Victims()
	if o.servesStore() {
		all = append(all, chaos.ObjectStore())
	}
	if len(o.victims) == 0 {
		return all, nil
	}
	var out []chaos.Victim
	for _, name := range o.victims {
		found := false
		for _, v := range all {
			if v.Name == name {
				out, found = append(out, v), true
			}
		}
		if !found {
			return nil, cli.Usagef("--victims: %q is none of %v", name, victimNames(all))
		}
	}
	return out, nil
}

// chosenPoints are the fail points that were asked for, in the order of names.
func chosenPoints(names []string) ([]string, error) {
	known := failpoint.Points()
	var out []string
	for _, name := range names {
		if name == "all" {
			for p := range known {
				out = append(out, string(p))
			}
			continue
		}
		if _, ok := known[failpoint.Point(name)]; !ok {
			return nil, cli.Usagef("--points: no fail point %q; they are %v", name, slices.Sorted(maps.Keys(known)))
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (o *chaosOptions) bench(ctx context.Context, out, progress io.Writer) error {
	if o.runs < 1 || o.kills < 0 {
		return cli.Usagef("--runs %d and --kills %d: want at least 1 and 0", o.runs, o.kills)
	}
	victims, err := o.chosen()
	if err != nil {
		return err
	}
	points, err := chosenPoints(o.points)
	if err != nil {
		return err
	}
	if _, err := o.load(); err != nil {
		return err
	}
	if err := cli.FindPython(o.python); err != nil {
		return cli.Usage(err)
	}
	// What loses its parent comes to us: nothing can hide.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "temper-chaos-"); err != nil {
			return err
		}
	}
	h := harness{chaosOptions: o, progress: progress, points: points, chaos: chaos.Config{Seed: o.seed, Kills: o.kills, Victims: victims}}
	report, err := h.all(ctx)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = cli.PrintJSON(out, report)
	} else {
		err = report.Text(out)
	}
	switch {
	case err != nil:
		return err
	case !report.Good():
		return fmt.Errorf("runs differ from the undisturbed one; their homes are in %s", o.dir)
	case o.keep:
		return nil
	default:
		return os.RemoveAll(o.dir)
	}
}

// harness carries out the runs.
type harness struct {
	*chaosOptions
	progress io.Writer
	chaos    chaos.Config
	points   []string
	calm     chaos.Contents
	pace     chaos.Outcome // of the undisturbed run
}

func (h *harness) all(ctx context.Context) (*chaos.Report, error) {
	report := &chaos.Report{Build: buildinfo.Line(), Config: filepath.Base(h.config), Store: cmp.Or(h.store, "file"), Seed: h.chaos.Seed}
	calm, err := h.try(ctx, "calm", nil, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("undisturbed run: %w", err)
	}
	if calm.Failure != "" {
		return nil, fmt.Errorf("the undisturbed run failed: %s; its home is %s", calm.Failure, filepath.Join(h.dir, "calm"))
	}
	report.Calm, report.Objects, h.pace = calm.Wall, calm.Objects, calm.Outcome
	fmt.Fprintf(h.progress, "undisturbed run: %.1f s, %d objects\n", calm.Wall, calm.Objects)
	for i := range h.runs {
		trial, err := h.try(ctx, fmt.Sprintf("run-%03d", i+1), h.share(i), h.chaos.Schedule(i), calm.Objects)
		if err != nil && ctx.Err() != nil {
			break // the report is of what was done
		}
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		trial.Beside(&h.pace)
		report.Trials = append(report.Trials, trial)
		fmt.Fprintf(h.progress, "run %d/%d: %.1f s, %d kills, %d objects differ\n", i+1, h.runs, trial.Wall, len(trial.Blows), len(trial.Differences))
	}
	report.Sum()
	return report, nil
}

// share is the fail points of one run: they are dealt out in order.
func (h *harness) share(run int) []string {
	var out []string
	for i := run; i < len(h.points); i += h.runs {
		out = append(out, h.points[i])
	}
	return out
}

// try carries out one run in a home of its own and looks at what it left.
func (h *harness) try(ctx context.Context, name string, points []string, kills []chaos.Kill, expect int) (chaos.Trial, error) {
	host, err := h.newHost(ctx, name, points)
	if err != nil {
		return chaos.Trial{}, err
	}
	defer host.close()
	bounded, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	var t chaos.Trial
	if t.Outcome, err = chaos.Try(bounded, host, kills, expect); err != nil || ctx.Err() != nil || t.Failure != "" {
		return t, errors.Join(err, ctx.Err())
	}
	t.Unreached = host.unreached()
	if err := h.inspect(ctx, host, &t); err != nil {
		return t, err
	}
	if !h.keep && len(t.Differences)+t.Prompts.Lost+t.Prompts.Doubled+len(t.Torn)+len(t.Orphans) == 0 {
		return t, os.RemoveAll(host.process.Home)
	}
	return t, nil
}

// inspect compares what a run left, when its service is gone.
func (h *harness) inspect(ctx context.Context, host *chaosHost, t *chaos.Trial) error {
	stop, err := host.serveStore(ctx)
	if err != nil {
		return err
	}
	defer stop()
	contents, err := chaos.Read(ctx, host.store, host.Run())
	if err != nil {
		return err
	}
	if h.calm == nil {
		h.calm = contents
	}
	t.Differences = chaos.Compare(h.calm, contents)
	if t.Prompts, err = chaos.CheckPrompts(ctx, host.store, host.Run()); err != nil {
		return err
	}
	if t.Checkpoints, t.Torn, err = verified(ctx, host.store, host.Run()); err != nil {
		return err
	}
	return nil
}

// verified loads every checkpoint and every policy of a run.
func verified(ctx context.Context, store blob.Store, run artifact.Layout) (good int, torn []string, err error) {
	entries, err := checkpoint.List(ctx, store, run.Checkpoints())
	if err != nil {
		return 0, nil, err
	}
	if len(entries) == 0 {
		torn = append(torn, "no checkpoint is left")
	}
	for _, e := range entries {
		if _, _, err := checkpoint.Load(ctx, store, e.Ref); err != nil {
			torn = append(torn, fmt.Sprintf("checkpoint %d: %v", e.Step, err))
			continue
		}
		good++
	}
	return good, torn, nil
}
