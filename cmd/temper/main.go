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

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/internal/proc/failpoint"
	"temper/jobs"
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
	if err := jobs.AwaitServers(ctx, stderr, program); err != nil {
		return cli.Fail(stderr, program, err)
	}
	return renamed().Execute(ctx, rootCommand(), args, stdout, stderr)
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
	p := cli.PlaceFlags(root.PersistentFlags())
	root.AddCommand(
		upCommand(p), runCommand(p), evalCommand(p), ablateCommand(p), verifyCommand(), analyzeCommand(p), scheduleCommand(p), roleCommand(p), serveCommand(p), chatCommand(p),
		dataCommand(), configCommand(p), modelCommand(), backendCommand(), planCommand(), versionCommand(), doctorCommand(p), storeCommand(p), clusterCommand(), exportCommand(p),
	)
	root.AddCommand(movedCommand("bench", "the instruments are bin/temper-bench: build it with ./task build:bench"))
	completeRuns(root)
	return root
}

// group returns a command that holds others and does nothing by itself.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}

// movedCommand answers the name of a command that is no longer here.
func movedCommand(name, answer string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return cli.Usagef("%s", answer) },
	}
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// show prints v as JSON, or by text for people.
func show[T any](cmd *cobra.Command, asJSON bool, v T, text func(io.Writer, T) error) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout(), v)
}
