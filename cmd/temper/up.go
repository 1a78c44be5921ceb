package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/service"
	"temper/internal/service/runclient"
	"temper/internal/temporalclient"
	"temper/ui"
	"temper/workers"
	"temper/workflows"
)

// upOptions say what `temper up` starts and when it ends.
type upOptions struct {
	runclient.Submission
	exit, exitSet bool
	service.Options
}

// maxRolloutWorkers bounds the processes on one machine; a cluster starts its own.
const maxRolloutWorkers = 64

// maxTrainers bounds the processes of --trainers.
const maxTrainers = 16

func upCommand(p *config.Process) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the whole service on this machine, and a run with --run",
		Long: `Starts and keeps alive: a Temporal server with its web UI on a durable file (unless
TEMPORAL_ADDRESS names one), the sandbox, the control worker and the trainer, which also
samples, and the dashboard, whose address comes first; with --rollout-workers 2 two more
processes sample instead. With
--store s3d://127.0.0.1:9000 also an S3 server on that port with its data below --home.
The sandbox answers to nobody without the token in TEMPER_SANDBOX_TOKEN; when that
is not set, only what is started here knows the token.
Ctrl-C stops everything; what was done is kept and goes on at the next start.`,
		Args: cobra.NoArgs,
	}
	submissionFlags(cmd, &o.Submission)
	cmd.Flags().StringVar(&o.File, "run", "", "run configuration (YAML); relative paths in it count from its folder")
	cli.PythonFlag(cmd.Flags(), p)
	cmd.Flags().BoolVar(&o.exit, "exit", false, "stop when the run of --run has ended, or with --exit=false keep serving; by default it serves on if the output is a terminal")
	cmd.Flags().BoolVar(&o.Embedded, "embedded", false, "start the embedded Temporal server on --temporal's port even if TEMPORAL_ADDRESS is set")
	cmd.Flags().StringSliceVar(&o.Require, "sandbox-require", nil, "isolation layers without which to refuse to start; all = every layer")
	cmd.Flags().StringVar(&o.UIHosts, "ui-host", os.Getenv("TEMPER_UI_HOST"), "further host names under which browsers may open the web UI, with commas; loopback names always may (TEMPER_UI_HOST)")
	cmd.Flags().IntVar(&o.RolloutWorkers, "rollout-workers", 0, "processes that sample beside the trainer, which then only trains; 0 = the trainer's process samples, too")
	cmd.Flags().IntVar(&o.Trainers, "trainers", 1, "processes that train together, the trainer and its members (temper role host); changes no bit of a run. On one machine they share its cores: it is for trying what several hosts do")
	cmd.Flags().StringVar(&o.Backend, "backend", "", "backend of the trainer, such as xla:cuda; default go. Processes of --rollout-workers sample on go")
	cmd.Flags().StringVar(&o.Mesh, "mesh", "", "devices of an XLA backend for training, like data=4,model=2; empty = one device")
	cmd.Flags().StringVar(&o.Dashboard, "dashboard", "127.0.0.1:0", "host:port of the dashboard; port 0 takes a free one; off = none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Seeded, o.Local = cmd.Flags().Changed("seed"), true
		if !o.Embedded {
			o.Embedded = os.Getenv("TEMPORAL_ADDRESS") == ""
		}
		if err := o.checkFlags(cmd); err != nil {
			return err
		}
		return up(cmd.Context(), p, &o, cmd.OutOrStdout())
	}
	return cmd
}

// checkUp finds what is wrong before anything is started, all at once.
func checkUp(ctx context.Context, p *config.Process, o *upOptions, say func(string)) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := errors.Join(checkUpStore(ctx, p, o), o.Options.Check(ctx, p, say), checkTrainerBackend(o.Backend, o.Mesh)); err != nil {
		return cli.Usage(err)
	}
	if err := ensureBackend(ctx, o.Backend, o.Mesh); err != nil {
		return err
	}
	return o.CheckServer(ctx, p)
}

// checkUpStore checks the store and the run against it. One that is not there
// before it is started can only be asked afterwards.
func checkUpStore(ctx context.Context, p *config.Process, o *upOptions) error {
	if !service.ServesStore(p) {
		store, err := workers.OpenStore(ctx, p)
		if err != nil {
			return err
		}
		return o.checkStore(ctx, store)
	}
	err := service.FindStoreServer()
	if o.File != "" {
		_, loadErr := o.Load()
		err = errors.Join(err, loadErr)
	}
	return err
}

// checkStore finds out that a store cannot be used, or has no place for the run,
// before anything relies on it.
func (o *upOptions) checkStore(ctx context.Context, store blob.Store) error {
	if err := workers.ProbeStore(ctx, store); err != nil || o.File == "" {
		return err
	}
	return o.Submission.Check(ctx, store)
}

// checkFlags finds flags that do not go together.
func (o *upOptions) checkFlags(cmd *cobra.Command) error {
	o.exitSet = cmd.Flags().Changed("exit")
	if o.RolloutWorkers < 0 || o.RolloutWorkers > maxRolloutWorkers {
		return cli.Usagef("--rollout-workers: is %d, want 0 to %d", o.RolloutWorkers, maxRolloutWorkers)
	}
	if o.Trainers < 1 || o.Trainers > maxTrainers {
		return cli.Usagef("--trainers: is %d, want 1 to %d", o.Trainers, maxTrainers)
	}
	if o.Trainers > 1 && o.Mesh != "" {
		return cli.Usagef("--trainers and --mesh exclude each other: members help a trainer on one device")
	}
	if o.Dashboard == "off" {
		o.Dashboard = ""
	} else if err := ui.CheckListen(o.Dashboard, false); err != nil {
		return cli.Usagef("--dashboard: %w", err)
	}
	if o.File != "" {
		return nil
	}
	for _, flag := range []string{"run-id", "seed", "set", "exit"} {
		if cmd.Flags().Changed(flag) {
			return cli.Usagef("--%s is for a run: name its configuration with --run", flag)
		}
	}
	return nil
}

func up(ctx context.Context, p *config.Process, o *upOptions, out io.Writer) error {
	say := func(text string) { fmt.Fprintln(out, text) }
	if err := checkUp(ctx, p, o, say); err != nil {
		return err
	}
	release, err := service.Claim(ctx, p, say)
	if err != nil {
		return err
	}
	defer release()
	children, err := service.Children(p, o.Options)
	if err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(p.LogDir(), "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close() //nolint:errcheck // a log
	log := slog.New(slog.NewJSONHandler(logFile, nil))
	sup, err := proc.New(proc.Config{Children: children, Log: log})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, buildinfo.Line())
	s := cli.New(out, sup.Snapshot)
	defer s.Close()
	defer service.NoteStates(context.WithoutCancel(ctx), p, sup.Snapshot, log)()
	started := time.Now()
	if err = sup.Start(ctx); err == nil {
		s.Line(fmt.Sprintf("all services up after %.1f s, logs in %s", time.Since(started).Seconds(), p.LogDir()))
		if o.Dashboard != "" {
			if err := sayDashboard(p, s.Line); err != nil {
				log.Warn("the address of the dashboard is unknown", "err", err)
			}
		}
		if p.UIAddress != "" {
			s.Line("web UI http://" + p.UIAddress + runsPage(o.Embedded))
		}
		err = serve(ctx, p, o, s, log)
	} else if ctx.Err() != nil {
		err = fmt.Errorf("%w during the start", cli.ErrInterrupted)
	}
	if ctx.Err() != nil {
		s.Line("stopping the services (Ctrl-C once more kills them)")
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, sup.Stop(stopCtx))
}

// serve runs the run of --run, if any, and then stays until ctx is done.
func serve(ctx context.Context, p *config.Process, o *upOptions, s *cli.Screen, log *slog.Logger) error {
	c, store, err := runclient.ConnectAs(ctx, p, log)
	if err != nil && ctx.Err() != nil { // stopped as soon as it was up
		return o.stoppedEarly()
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if o.Embedded {
		if err := temporalclient.TellUI(ctx, c, p.Namespace, p.UIAddress); err != nil {
			log.Warn("commands will not know the web UI", "err", err)
		}
	}
	if service.ServesStore(p) { // it was not there before
		if err := o.checkStore(ctx, store); err != nil {
			return err
		}
	}
	nameOpenRuns(ctx, c, s, log)
	if o.File == "" {
		defer showRuns(ctx, c, s, "")()
		s.Line("submit a run with: temper run submit configs/demo.yaml --wait      (Ctrl-C stops)")
		<-ctx.Done()
		return nil
	}
	if err := runclient.Submit(ctx, c, &o.Submission); err != nil {
		return err
	}
	o.WriteNote(s)
	if _, err := runclient.AwaitStart(ctx, c, o.RunID, s); err != nil {
		return err
	}
	page := runclient.Page(p, workflows.RunWorkflowID(o.RunID))
	s.Line("run " + o.RunID + " started: " + page)
	defer showRuns(ctx, c, s, o.RunID)()
	if err := runclient.Follow(ctx, c, store, o.RunID, s); err != nil {
		if errors.Is(err, cli.ErrInterrupted) {
			return fmt.Errorf("%w: run %s goes on when temper up is started again", cli.ErrInterrupted, o.RunID)
		}
		return err
	}
	if err := runclient.Finish(ctx, store, page, o.RunID, s); err != nil {
		return err
	}
	if o.exitSet && !o.exit || !o.exitSet && s.Live() {
		s.SetStatus("run " + o.RunID + " is done  serving until Ctrl-C")
		<-ctx.Done()
	}
	return nil
}

// stoppedEarly is how a service ends that was told to stop before it had begun its run:
// well, where it has none.
func (o *upOptions) stoppedEarly() error {
	if o.File == "" {
		return nil
	}
	return fmt.Errorf("%w before the run was started", cli.ErrInterrupted)
}

// showRuns keeps the open runs in the screen's block, except for the one that is followed
// there.
func showRuns(ctx context.Context, c client.Client, s *cli.Screen, followed string) (stop func()) {
	return s.ShowRuns(ctx, func(ctx context.Context) ([]workflows.RunStatus, error) {
		return workflows.OpenStatuses(ctx, c, followed)
	})
}

// nameOpenRuns names the runs that an earlier service left open and this one continues. The
// service starts even if the server cannot list them.
func nameOpenRuns(ctx context.Context, c client.Client, s *cli.Screen, log *slog.Logger) {
	open, err := workflows.OpenRuns(ctx, c)
	if err != nil {
		log.Warn("open runs are unknown", "err", err)
	}
	for _, run := range open {
		s.Line(fmt.Sprintf("run %s goes on: temper run follow %s shows it", run.RunID, run.RunID))
	}
}

// runsPage is where our own server sends a browser to the list of runs.
func runsPage(embedded bool) string {
	if embedded {
		return "/runs"
	}
	return ""
}
