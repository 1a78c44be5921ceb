// Command temper trains agents. Each subcommand is a role or a request; it
// turns flags into configuration, wires packages and runs them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"temper/internal/buildinfo"
	"temper/internal/config"
	"temper/internal/failpoint"
)

// Exit codes: 0 done, 1 the system is at fault, 2 the user's input is, 130 a
// person ended the wait for a run before the run ended.
const (
	exitSystem      = 1
	exitUser        = 2
	exitInterrupted = 130
)

// usageError marks a mistake of the user.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted ends a wait for a run that goes on.
var errInterrupted = errors.New("interrupted")

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := failpoint.Check(); err != nil {
		fmt.Fprintln(stderr, prefixed(err))
		return exitUser
	}
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(stderr, prefixed(err))
	}
	return exitCode(err)
}

// prefixed puts the program's name before each line of an error.
func prefixed(err error) string {
	return "temper: " + strings.ReplaceAll(err.Error(), "\n", "\ntemper: ")
}

func exitCode(err error) int {
	var usage usageError
	var problems config.Problems
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &problems):
		return exitUser
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	default:
		return exitSystem
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "temper",
		Short:         "Durable training of tool-using language models",
		Version:       buildinfo.Line(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		upCommand(), runCommand(), evalCommand(), scheduleCommand(), workerCommand(), trainerCommand(),
		sandboxCommand(), gatewayCommand(), dataCommand(), configCommand(), modelCommand(), benchCommand(), doctorCommand(), storeCommand(),
	)
	asUsage(root)
	return root
}

// asUsage makes wrong arguments of every command a user error.
func asUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err == nil:
				return nil
			case strings.Contains(err.Error(), c.CommandPath()):
				return usageError{err}
			default:
				return usagef("%s: %w", c.CommandPath(), err)
			}
		}
	}
	for _, sub := range cmd.Commands() {
		asUsage(sub)
	}
}

// processFlags adds the flags that say where things are.
func processFlags(cmd *cobra.Command) *config.Process {
	p := config.DefaultProcess()
	f := cmd.Flags()
	f.StringVar(&p.Home, "home", p.Home, "folder of the store, the logs and the embedded Temporal database (TEMPER_HOME)")
	f.StringVar(&p.Store, "store", p.Store, "URL of the store: file:///dir, s3://bucket/prefix or minio://host:port/bucket/prefix, or s3d://127.0.0.1:port for the server of temper up; default files below --home (TEMPER_STORE)")
	f.StringVar(&p.TemporalAddress, "temporal", p.TemporalAddress, "host:port of the Temporal frontend (TEMPORAL_ADDRESS)")
	f.StringVar(&p.Namespace, "namespace", p.Namespace, "Temporal namespace (TEMPORAL_NAMESPACE)")
	f.StringVar(&p.UIAddress, "ui", p.UIAddress, "host:port of the Temporal web UI (TEMPER_UI_ADDRESS)")
	f.StringVar(&p.SandboxAddress, "sandbox", p.SandboxAddress, "host:port of the sandbox node (TEMPER_SANDBOX_ADDRESS)")
	f.StringVar(&p.Python, "python", p.Python, "interpreter that the sandbox runs (TEMPER_PYTHON)")
	return &p
}

// newLogger writes text for people on a terminal and JSON elsewhere.
func newLogger(role string) *slog.Logger {
	var h slog.Handler = slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})
	if term.IsTerminal(int(os.Stderr.Fd())) {
		h = tint.NewTextHandler(os.Stderr, nil)
	}
	return slog.New(h).With("role", role)
}
