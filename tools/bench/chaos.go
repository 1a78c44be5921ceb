package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/tools/bench/chaos"
)

// chaosOptions say what `temper-bench chaos` does.
type chaosOptions struct {
	config      string
	set         []string
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
	elastic     string
	ledger      string
	only        []int
}

func chaosCommand() *cobra.Command {
	var o chaosOptions
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill processes in the middle of runs and compare their bits with an undisturbed one",
		Long: `Carries out a run undisturbed, then again and again while it kills -9 processes of the
service at random moments, the supervisor among them, and compares all that the
runs left in their stores. The seed decides who is killed after how much of a run.
Ends with code 1 when a bit differs, a prompt is lost or doubled, a checkpoint is
torn, a process is left behind or a run does not end.

With --elastic the roles are processes of their own, and join and leave while a run
goes on: up to four that sample, three sandbox nodes behind a gateway, and two control
workers. Some drain, some are killed, in the start, in the drain or at work.

With --ledger the harness goes on where it was stopped, also by a kill or a reboot:
each trial is a line of the file, and none is made or counted twice.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "configs/ci.yaml", "run configuration (YAML)")
	f.StringArrayVar(&o.set, "set", nil, "key=value over the configuration; repeatable")
	f.IntVar(&o.runs, "runs", 20, "disturbed runs")
	f.IntVar(&o.kills, "kills", 5, "kills of each run")
	f.Uint64Var(&o.seed, "seed", 1, "decides victims and moments")
	f.StringSliceVar(&o.victims, "victims", nil, "who is killed; default is everybody: "+fmt.Sprint(victimNames(chaos.Victims()))+", with --elastic "+fmt.Sprint(victimNames(chaos.ElasticVictims()))+", and s3d with --store s3d:")
	f.StringSliceVar(&o.points, "points", nil, "fail points that end their process once in a run, beside the kills; all = every one; dealt out over the runs")
	f.StringVar(&o.dir, "dir", "", "folder of the homes; default is a temporary one")
	f.BoolVar(&o.keep, "keep", false, "keep the homes of good runs, too")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.StringVar(&o.python, "python", config.DefaultProcess().Python, "interpreter that the sandbox runs (TEMPER_PYTHON)")
	f.StringVar(&o.store, "store", "", "URL below which each run gets a store of its own, or s3d://127.0.0.1:0 for an S3 server of each run; default is files in its home")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "after which a run is taken for one that does not end")
	f.StringVar(&o.elastic, "elastic", elasticNever, "members join and leave in no trial (never), in every second one (mixed) or in all (always)")
	f.Lookup("elastic").NoOptDefVal = elasticAlways
	f.StringVar(&o.ledger, "ledger", "", "file (JSONL) to which each trial is added, and whose trials are not made again")
	f.IntSliceVar(&o.only, "only", nil, "numbers of the runs to make, from 1, of those that --seed and --runs decide; to repeat one that failed")
	cmd.AddCommand(chaosReportCommand())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.carryOut(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
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

// Values of --elastic.
const (
	elasticNever  = "never"
	elasticMixed  = "mixed"
	elasticAlways = "always"
)

// isElastic says whether members join and leave in a trial, counted from 0.
func (o *chaosOptions) isElastic(run int) bool {
	return o.elastic == elasticAlways || o.elastic == elasticMixed && run%2 == 1
}

// chosen are the victims that were asked for, among those of a kind of trial. A name
// that no trial knows is the user's mistake.
func (o *chaosOptions) chosen(elastic bool) ([]chaos.Victim, error) {
	all, other := chaos.Victims(), chaos.ElasticVictims()
	if elastic {
		all, other = other, all
	}
	if o.servesStore() {
		all = append(all, chaos.ObjectStore())
	}
	if len(o.victims) == 0 {
		return all, nil
	}
	if o.elastic != elasticMixed {
		other = nil
	}
	var out []chaos.Victim
	for _, name := range o.victims {
		i := slices.IndexFunc(all, func(v chaos.Victim) bool { return v.Name == name })
		if i >= 0 {
			out = append(out, all[i])
		} else if !slices.Contains(victimNames(other), name) {
			return nil, cli.Usagef("--victims: %q is none of %v", name, victimNames(all))
		}
	}
	if len(out) == 0 {
		return nil, cli.Usagef("--victims: none of %v is in a trial of this kind, which has %v", o.victims, victimNames(all))
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

// check finds what is wrong with the flags, and returns the harness that they ask for.
func (o *chaosOptions) check(progress io.Writer) (*harness, error) {
	if o.runs < 1 || o.kills < 0 {
		return nil, cli.Usagef("--runs %d and --kills %d: want at least 1 and 0", o.runs, o.kills)
	}
	if !slices.Contains([]string{elasticNever, elasticMixed, elasticAlways}, o.elastic) {
		return nil, cli.Usagef("--elastic: is %q, want %s, %s or %s", o.elastic, elasticNever, elasticMixed, elasticAlways)
	}
	for _, n := range o.only {
		if n < 1 || n > o.runs {
			return nil, cli.Usagef("--only: %d is no run of --runs %d", n, o.runs)
		}
	}
	points, err := chosenPoints(o.points)
	if err != nil {
		return nil, err
	}
	h := &harness{chaosOptions: o, progress: progress, points: points, chaos: map[bool]chaos.Config{}}
	for i := range min(o.runs, 2) {
		victims, err := o.chosen(o.isElastic(i))
		if err != nil {
			return nil, err
		}
		h.chaos[o.isElastic(i)] = chaos.Config{Seed: o.seed, Kills: o.kills, Victims: victims}
	}
	if err := h.loadRun(); err != nil {
		return nil, cli.Usage(err)
	}
	if err := cli.FindPython(o.python); err != nil {
		return nil, cli.Usage(err)
	}
	if h.temper, err = temperBinary(); err != nil {
		return nil, err
	}
	return h, nil
}

// loadRun reads the configuration of the run that is carried out again and again.
func (h *harness) loadRun() error {
	set, err := cli.ParseSet(h.set)
	if err != nil {
		return err
	}
	cfg, err := config.LoadFile(h.config, set)
	if err != nil {
		return err
	}
	if h.hash, err = cfg.Hash(); err != nil {
		return err
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	inline, err := json.Marshal(string(text))
	h.input = run.Input{RunID: chaosRun, Config: inline}
	return err
}

func (o *chaosOptions) carryOut(ctx context.Context, out, progress io.Writer) error {
	h, err := o.check(progress)
	if err != nil {
		return err
	}
	// Processes that lose their parent become children of this one, so that none
	// can hide.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	ours := o.dir == ""
	if ours {
		if o.dir, err = os.MkdirTemp("", "temper-chaos-"); err != nil {
			return err
		}
	}
	report, err := h.tryAll(ctx)
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
	case o.keep || !ours:
		return nil
	default:
		return os.RemoveAll(o.dir)
	}
}
