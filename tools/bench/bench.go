// Command temper-bench measures parts of Temper: each subcommand reads flags, calls one of
// the instruments below this folder and prints what it measured. The product links
// none of them.
//
// Invariant: an instrument starts what users run, the temper binary that lies beside this
// one, or puts load on a service as any client would.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/workers"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return cli.Execute(ctx, rootCommand(), args, stdout, stderr)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "temper-bench", Short: "Measure parts of Temper on this machine", Version: buildinfo.Line(), Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		sandboxCommand(), boardCommand(), contestCommand(), scaleCommand(), soakCommand(), overloadCommand(), layersCommand(), densityCommand(),
		trainerCommand(), engineCommand(), deviceCommand(), schedulerCommand(workers.OpenStore), chaosCommand(),
	)
	return root
}

// temperBinary returns the path of the temper binary, which lies beside this program.
func temperBinary() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "temper")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no temper beside %s: build it with ./task build", self)
	}
	return path, nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// uniquePrefix begins the IDs of a load: a service answers a repeated ID with the
// first answer and must not do so here.
func uniquePrefix(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }
