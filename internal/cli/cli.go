package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Execute runs one command line, prints its error to stderr, and returns the
// exit status.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	return Renamed(nil).Execute(ctx, root, args, stdout, stderr)
}

// Execute is like the function Execute, and answers a command line of an earlier build
// with the line that names its successor.
func (r Renamed) Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return Usage(suggestFlag(c, r, err)) })
	argumentsAreUsage(root)
	if err := r.check(root, args); err != nil {
		return Fail(stderr, root.Name(), err)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return Fail(stderr, root.Name(), root.ExecuteContext(ctx))
}

// Fail prints err, if there is one, with the name of the program before each
// line, and returns the exit status.
func Fail(stderr io.Writer, program string, err error) int {
	if err != nil {
		prefix := program + ": "
		fmt.Fprintln(stderr, prefix+strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
	}
	return ExitCode(err)
}

// argumentsAreUsage makes wrong arguments of every command a mistake of the user.
func argumentsAreUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err != nil && c.HasSubCommands() && len(args) > 0:
				return Usage(unknownCommand(c, args[0]))
			case err == nil:
				return nil
			case strings.Contains(err.Error(), c.CommandPath()):
				return Usage(err)
			default:
				return Usagef("%s: %w", c.CommandPath(), err)
			}
		}
	}
	for _, sub := range cmd.Commands() {
		argumentsAreUsage(sub)
	}
}
