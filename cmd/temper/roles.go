package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"temper/activities"
	"temper/internal/buildinfo"
	"temper/internal/config"
	"temper/internal/procmem"
	"temper/internal/supervise"
	"temper/internal/temporalclient"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/node"
	"temper/sandbox/server"
	"temper/workers"
	"temper/workflows"
)

func workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Serve workflows and bookkeeping (control worker)", Args: cobra.NoArgs}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return serveControl(cmd.Context(), p) }
	return cmd
}

// rssInterval is short enough to see an evaluation's peak.
const rssInterval = time.Second

func serveControl(ctx context.Context, p *config.Process) error {
	log := newLogger("worker")
	c, store, err := connect(ctx, p, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	known, err := temporalclient.EnsureAttributes(ctx, c, p.Namespace, workflows.SearchAttributes())
	if err != nil {
		return err
	}
	log.Info("control worker starts", "build", buildinfo.Line(), "temporal", p.TemporalAddress, "search_attributes", known)
	var peak procmem.Peak
	watch, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { peak.Watch(watch, supervisorPID(), rssInterval) })
	defer watcher.Wait()
	defer stop()
	control := &activities.Control{Store: store, SearchAttributes: known, PeakRSS: peak.Bytes}
	return serveAll(ctx, p, "worker", func(ctx context.Context, o workers.Options) error {
		return workers.RunControl(ctx, c, control, o)
	})
}

// serveAll runs the workers of a role and announces it when all of them poll.
func serveAll(ctx context.Context, p *config.Process, role string, serve ...func(context.Context, workers.Options) error) error {
	var started atomic.Int32
	options := workers.Options{OnStart: func() error {
		if int(started.Add(1)) < len(serve) {
			return nil
		}
		return announceReady(p, role)
	}}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range serve {
		g.Go(func() error { return s(ctx, options) })
	}
	return g.Wait()
}

func trainerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "trainer", Short: "Serve training and rollouts on this machine's device", Args: cobra.NoArgs}
	p := processFlags(cmd)
	backend := cmd.Flags().String("backend", "go", "GoMLX backend")
	concurrent := cmd.Flags().Int("concurrent-rollouts", 128, "trajectories under way at a time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return serveTrainer(cmd.Context(), p, *backend, *concurrent)
	}
	return cmd
}

func serveTrainer(ctx context.Context, p *config.Process, backend string, concurrent int) error {
	log := newLogger("trainer")
	c, store, err := connect(ctx, p, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	executor, err := httpapi.NewClient(p.SandboxAddress, httpapi.Options{Token: os.Getenv(sandboxTokenKey)})
	if err != nil {
		return err
	}
	log.Info("trainer starts", "build", buildinfo.Line(), "backend", backend, "temporal", p.TemporalAddress, "sandbox", p.SandboxAddress)
	learners := learnerFactory{store: store, backend: backend}
	rollouts := &activities.Rollouts{
		Store: store, Executor: executor, NewEngine: engineFactory{store: store, backend: backend, slots: concurrent, log: log}.make,
		MaxConcurrent: concurrent, Now: time.Now,
	}
	defer activities.CloseEngines(rollouts)
	trainer := &activities.Trainer{Store: store, NewLearner: learners.make, Now: time.Now}
	return serveAll(ctx, p, "trainer",
		func(ctx context.Context, o workers.Options) error { return workers.RunTrainer(ctx, c, trainer, o) },
		func(ctx context.Context, o workers.Options) error {
			return workers.RunRollout(ctx, c, rollouts, rolloutSlots, o)
		})
}

// rolloutSlots: activities of different runs share the device; more would only
// hold more caches.
const rolloutSlots = 2

func sandboxCommand() *cobra.Command {
	cfg := node.Config{Build: buildinfo.Line()}
	cmd := &cobra.Command{Use: "sandbox", Short: "Serve isolated Python execution", Args: cobra.NoArgs}
	p := config.DefaultProcess()
	serverFlags(cmd, &cfg.Server, p.SandboxAddress)
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", p.Python, "interpreter (TEMPER_PYTHON)")
	f.IntVar(&cfg.Zygotes, "zygotes", 0, "warm interpreters; 0 = one a core")
	f.IntVar(&cfg.Slots, "slots", 0, "programs running at a time; 0 = a multiple of the cores")
	f.IntVar(&cfg.Queue, "queue", 0, "programs waiting; 0 = a multiple of the slots")
	f.StringSliceVar(&cfg.Require, "require", nil, "isolation layers without which to refuse to start; all = every layer")
	f.Var((*byteSize)(&cfg.Memory), "memory", "bound of all programs together, such as 24GiB; 0 = three quarters of what there is")
	f.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how long calls may go on after SIGTERM")
	debug := f.Bool("debug", false, "also log some of the calls, never their code or output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := errors.Join(findPython(cfg.Python), checkSandboxListen(cfg.Server.Listen), cfg.Server.Check(), checkSizes(&cfg))
		if err != nil {
			return usageError{err}
		}
		log := sandboxLogger("sandbox", *debug)
		cfg.OnReady = func(ready node.Ready) { printReady(cmd, log, ready) }
		return node.Serve(cmd.Context(), cfg, log)
	}
	return cmd
}

// serverFlags adds what a node and a gateway have in common. The token comes from
// the environment: every user of a machine sees the flags of a process.
func serverFlags(cmd *cobra.Command, cfg *server.Config, listen string) {
	cfg.Token = os.Getenv(sandboxTokenKey)
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", listen, "host:port or unix:/path")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file of its private key")
	f.StringVar(&cfg.TLS.ClientCA, "tls-client-ca", "", "PEM file of the authorities of which clients need a certificate")
	f.BoolVar(&cfg.Insecure, "insecure", false, "serve other machines without a token ("+sandboxTokenKey+")")
}

// sandboxTokenKey names the bearer token of sandbox nodes, gateways and their clients.
const sandboxTokenKey = "TEMPER_SANDBOX_TOKEN"

// byteSize is a flag for an amount of memory.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }

// Set implements pflag.Value: a number with a binary unit or none.
func (b *byteSize) Set(text string) error {
	number, shift := text, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return errors.New("want bytes, or a number of KiB, MiB, GiB or TiB")
	}
	*b = byteSize(n << shift)
	return nil
}

// checkSizes finds sizes of a node below zero.
func checkSizes(cfg *node.Config) error {
	var wrong []error
	for _, size := range []struct {
		flag  string
		value int64
	}{
		{"zygotes", int64(cfg.Zygotes)}, {"slots", int64(cfg.Slots)}, {"queue", int64(cfg.Queue)}, {"drain", int64(cfg.Drain)},
	} {
		if size.value < 0 {
			wrong = append(wrong, fmt.Errorf("--%s is below zero", size.flag))
		}
	}
	return errors.Join(wrong...)
}

// sandboxLogger is newLogger, or with debug a log of everything for machines.
func sandboxLogger(role string, debug bool) *slog.Logger {
	if !debug {
		return newLogger(role)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", role)
}

func checkSandboxListen(addr string) error {
	if _, _, err := net.SplitHostPort(addr); strings.HasPrefix(addr, httpapi.UnixPrefix) || err != nil {
		return nil // a socket, or told with more by the check of the address
	}
	if err := supervise.CheckListen(addr); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// findPython says what to do when there is no such interpreter.
func findPython(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("python %q not found: install python3 or name an interpreter with --python", name)
	}
	return nil
}

// printReady prints the one line that a supervisor or a script waits for.
func printReady(cmd *cobra.Command, log *slog.Logger, ready node.Ready) {
	layers := map[string]string{}
	for _, l := range ready.Report.Layers {
		layers[l.Name] = layerState(l)
	}
	err := server.WriteReady(cmd.OutOrStdout(), ready.Address, map[string]any{
		"url": ready.URL, "python": ready.Report.Python, "layers": layers,
	})
	if err != nil {
		log.Error("ready line is not written", "err", err)
	}
}

func layerState(l jail.Layer) string {
	if l.On {
		return "on"
	}
	return "off: " + l.Reason
}
