package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/supervise"
	"temper/internal/temporalclient"
	"temper/sandbox/jail"
	"temper/workflows"
)

// upOptions say what `temper up` starts and when it ends.
type upOptions struct {
	submission
	exit, stay bool
	embedded   bool // start our own Temporal server
	require    []string
	uiHosts    string
}

func upCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the whole service on this machine, and a run with --run",
		Long: `Starts and keeps alive: a Temporal server with its web UI on a durable file (unless
TEMPORAL_ADDRESS names one), the sandbox, the control worker and the trainer; with
--store s3d://127.0.0.1:9000 also an S3 server on that port with its data below --home.
The sandbox answers to nobody without the token in TEMPER_SANDBOX_TOKEN; when that
is not set, only what is started here knows the token.
Ctrl-C stops everything; what was done is kept and goes on at the next start.`,
		Args: cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	o.flags(cmd, "run")
	cmd.Flags().BoolVar(&o.exit, "exit", false, "stop when the run of --run has ended (default without a terminal)")
	cmd.Flags().BoolVar(&o.stay, "stay", false, "keep serving when the run has ended (default on a terminal)")
	cmd.Flags().BoolVar(&o.embedded, "embedded", false, "start the embedded Temporal server on --temporal's port even if TEMPORAL_ADDRESS is set")
	cmd.Flags().StringSliceVar(&o.require, "sandbox-require", nil, "isolation layers without which to refuse to start; all = every layer")
	cmd.Flags().StringVar(&o.uiHosts, "ui-host", os.Getenv("TEMPER_UI_HOST"), "further host names under which browsers may open the web UI, with commas; loopback names always may (TEMPER_UI_HOST)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.seeded = cmd.Flags().Changed("seed")
		if !o.embedded {
			o.embedded = os.Getenv("TEMPORAL_ADDRESS") == ""
		}
		if err := o.check(cmd); err != nil {
			return err
		}
		return up(cmd.Context(), p, &o, cmd.OutOrStdout())
	}
	return cmd
}

// check finds flags that do not go together.
func (o *upOptions) check(cmd *cobra.Command) error {
	if o.exit && o.stay {
		return cli.Usagef("--exit and --stay exclude each other")
	}
	if o.config != "" {
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
	if err := checkUp(ctx, p, o); err != nil {
		return err
	}
	release, err := claimHome(p)
	if err != nil {
		return err
	}
	defer release()
	children, err := upChildren(p, o)
	if err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(p.LogDir(), "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close() //nolint:errcheck // a log
	log := slog.New(slog.NewJSONHandler(logFile, nil))
	sup, err := supervise.New(supervise.Config{Children: children, Log: log})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, buildinfo.Line())
	s := newScreen(out, sup.Snapshot)
	defer s.close()
	started := time.Now()
	if err = sup.Start(ctx); err == nil {
		s.line(fmt.Sprintf("all services up after %.1f s, logs in %s", time.Since(started).Seconds(), p.LogDir()))
		if p.UIAddress != "" {
			s.line("web UI http://" + p.UIAddress)
		}
		err = serve(ctx, p, o, s, log)
	} else if ctx.Err() != nil {
		err = fmt.Errorf("%w during the start", cli.ErrInterrupted)
	}
	if ctx.Err() != nil {
		s.line("stopping the services (Ctrl-C once more kills them)")
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, sup.Stop(stopCtx))
}

// serve runs the run of --run, if any, and then stays until ctx is done.
func serve(ctx context.Context, p *config.Process, o *upOptions, s *screen, log *slog.Logger) error {
	c, store, err := connectAs(ctx, p, log)
	if err != nil {
		return err
	}
	defer c.Close()
	if servesStore(p) { // it was not there before
		if err := o.checkStore(ctx, store); err != nil {
			return err
		}
	}
	nameOpenRuns(ctx, c, s, log)
	if o.config == "" {
		s.line("submit a run with: temper run submit --config configs/demo.yaml --wait      (Ctrl-C stops)")
		<-ctx.Done()
		return nil
	}
	if err := submit(ctx, c, &o.submission); err != nil {
		return err
	}
	page := webUI(p, workflows.RunWorkflowID(o.runID))
	s.line("run " + o.runID + " started: " + page)
	if err := follow(ctx, c, store, o.runID, s); err != nil {
		if errors.Is(err, cli.ErrInterrupted) {
			return fmt.Errorf("%w: run %s goes on when temper up is started again", cli.ErrInterrupted, o.runID)
		}
		return err
	}
	if err := finish(ctx, store, page, o.runID, s); err != nil {
		return err
	}
	if o.stay || (!o.exit && s.live) {
		s.setStatus("run " + o.runID + " is done  serving until Ctrl-C")
		<-ctx.Done()
	}
	return nil
}

// nameOpenRuns tells of runs that an earlier service left open: they go on now.
// A server that does not let us list is no reason not to serve.
func nameOpenRuns(ctx context.Context, c client.Client, s *screen, log *slog.Logger) {
	open, err := workflows.OpenRuns(ctx, c)
	if err != nil {
		log.Warn("open runs are unknown", "err", err)
	}
	for _, run := range open {
		s.line(fmt.Sprintf("run %s goes on: temper run follow %s shows it", run.RunID, run.RunID))
	}
}

// checkUp finds what is wrong before anything is started, all at once.
func checkUp(ctx context.Context, p *config.Process, o *upOptions) error {
	if err := p.Validate(); err != nil {
		return err
	}
	wrong := []error{checkUpStore(ctx, p, o), cli.FindPython(p.Python), awaitListeners(ctx, p, o.embedded), checkLayers(ctx, p.Python, o.require)}
	if o.embedded {
		if path, err := temporaldPath(); err != nil {
			wrong = append(wrong, err)
		} else if _, err := os.Stat(path); err != nil {
			wrong = append(wrong, fmt.Errorf("%s not found: build it with ./task build, or name a running server with TEMPORAL_ADDRESS", path))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	if o.embedded {
		return nil
	}
	c, err := temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		c.Close()
	}
	return err
}

// checkUpStore checks the store and the run against it. One that is not there
// before it is started can only be asked afterwards.
func checkUpStore(ctx context.Context, p *config.Process, o *upOptions) error {
	if !servesStore(p) {
		store, err := openStore(ctx, p)
		if err != nil {
			return err
		}
		return o.checkStore(ctx, store)
	}
	err := findS3D()
	if o.config != "" {
		_, loadErr := o.load()
		err = errors.Join(err, loadErr)
	}
	return err
}

// checkListeners finds ports that are taken or asked for twice.
func checkListeners(p *config.Process, embedded bool) error {
	type listener struct{ flag, addr string }
	listeners := []listener{{"--sandbox", p.SandboxAddress}}
	if embedded {
		listeners = append(listeners, listener{"--temporal", p.TemporalAddress}, listener{"--ui", p.UIAddress})
	}
	if place, err := p.StorePlace(); err == nil && place.Kind == config.StoreS3D {
		listeners = append(listeners, listener{"--store", storeAddress(place)})
	}
	var wrong []error
	usedBy := map[string]string{}
	for _, l := range listeners {
		if l.addr == "" {
			continue
		}
		if other, twice := usedBy[l.addr]; twice {
			wrong = append(wrong, fmt.Errorf("%s and %s are both %s: choose another for one of them", other, l.flag, l.addr))
			continue
		}
		usedBy[l.addr] = l.flag
		if err := supervise.CheckListen(l.addr); err != nil {
			wrong = append(wrong, fmt.Errorf("%w: choose another with %s, or stop the other process", err, l.flag))
		}
	}
	return errors.Join(wrong...)
}

// checkLayers starts a jail for a moment when layers are required, so that a
// lacking one is told at once and not by a child that does not start.
func checkLayers(ctx context.Context, python string, require []string) error {
	if len(require) == 0 || cli.FindPython(python) != nil {
		return nil
	}
	j, err := jail.New(ctx, jail.Config{Python: python, Require: require})
	if err != nil {
		return fmt.Errorf("--sandbox-require: %w", err)
	}
	return j.Close()
}

// temporaldPath is where the embedded Temporal server is: beside this binary.
func temporaldPath() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "temporald"), err
}

// upChildren lists the processes in start order.
func upChildren(p *config.Process, o *upOptions) ([]supervise.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	role := func(name string, env []string, ready func(context.Context) error, args ...string) supervise.Child {
		return supervise.Child{
			Name: name, Path: self, Args: args, Env: env, Ready: ready,
			LogFile: filepath.Join(p.LogDir(), name+".log"), StopTimeout: 15 * time.Second,
		}
	}
	places := []string{
		"--home", p.Home, "--store", p.Store, "--temporal", p.TemporalAddress, "--namespace", p.Namespace,
		"--ui", p.UIAddress, "--sandbox", p.SandboxAddress,
	}
	token := sandboxTokenKey + "=" + sandboxToken()
	env := append(os.Environ(), "TEMPER_SUPERVISED=1")
	sandboxArgs := []string{"sandbox", "--listen", p.SandboxAddress, "--python", p.Python}
	if len(o.require) > 0 {
		sandboxArgs = append(sandboxArgs, "--require", strings.Join(o.require, ","))
	}
	var children []supervise.Child
	if o.embedded {
		temporal, err := temporalChild(p, o.uiHosts)
		if err != nil {
			return nil, err
		}
		children = append(children, temporal)
	}
	if servesStore(p) {
		store, err := storeChild(p)
		if err != nil {
			return nil, err
		}
		children = append(children, store)
	}
	return append(children,
		role("sandbox", append(scrubbedEnv(), token), httpReady("http://"+p.SandboxAddress+"/healthz"), sandboxArgs...),
		role("worker", env, readyFile(p, "worker", staleAfter), append([]string{"worker"}, places...)...),
		role("trainer", append(env, token), readyFile(p, "trainer", staleAfter), append([]string{"trainer"}, places...)...),
	), nil
}

func temporalChild(p *config.Process, uiHosts string) (supervise.Child, error) {
	path, err := temporaldPath()
	if err != nil {
		return supervise.Child{}, err
	}
	host, port, err := net.SplitHostPort(p.TemporalAddress)
	if err != nil {
		return supervise.Child{}, err
	}
	args := []string{"--db", p.TemporalDB(), "--ip", host, "--port", port, "--namespace", p.Namespace, "--exit-with-parent", "--ui-port", "0"}
	if p.UIAddress != "" {
		uiHost, uiPort, err := net.SplitHostPort(p.UIAddress)
		if err != nil {
			return supervise.Child{}, err
		}
		args[len(args)-1] = uiPort
		args = append(args, "--ui-host", uiHost+","+uiHosts) // the address that we print must work
	}
	return supervise.Child{
		Name: "temporal", Path: path, Args: args, LogFile: filepath.Join(p.LogDir(), "temporal.log"),
		StopTimeout: 15 * time.Second,
		Ready: func(ctx context.Context) error {
			c, err := temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace})
			if err != nil {
				return err
			}
			c.Close()
			return nil
		},
	}, nil
}

// sandboxToken is the token of the environment, or one that nobody knows: all users
// of a machine share its loopback address, and programs run as ours.
func sandboxToken() string {
	if token := os.Getenv(sandboxTokenKey); token != "" {
		return token
	}
	return rand.Text()
}

// scrubbedEnv is all that the sandbox gets to see besides its token, which its
// interpreters do not get: no other secret lives in it.
func scrubbedEnv() []string {
	env := []string{"LANG=C.UTF-8", "TEMPER_SUPERVISED=1"}
	for _, key := range []string{"PATH", "PYENV_ROOT", "PYENV_VERSION", "HOME"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // nothing is read
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
