// Command temper trains agents. Each subcommand is a role or a request; it
// turns flags into configuration, wires packages and runs them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/internal/failpoint"
)

// program begins each line of an error.
const program = "temper"

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
		return cli.Fail(stderr, program, cli.Usage(err))
	}
	if err := awaitPlaces(ctx, stderr); err != nil {
		return cli.Fail(stderr, program, err)
	}
	return cli.Execute(ctx, rootCommand(), args, stdout, stderr)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     program,
		Short:   "Durable training of tool-using language models",
		Version: buildinfo.Line(),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		upCommand(), runCommand(), evalCommand(), ablateCommand(), verifyCommand(), analyzeCommand(), scheduleCommand(), workerCommand(), trainerCommand(), memberCommand(), rolloutCommand(), engineCommand(),
		sandboxCommand(), gatewayCommand(), serveCommand(), uiCommand(), reportCommand(), chatCommand(), dataCommand(), configCommand(), modelCommand(), backendCommand(),
		versionCommand(), benchCommand(), doctorCommand(), storeCommand(), clusterCommand(), queryCommand(), exportCommand(), watchCommand(),
	)
	completeRuns(root)
	return root
}
