package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("disk full"), cli.ExitSystem},
		{cli.Usagef("--size %q", "x"), cli.ExitUser},
		{fmt.Errorf("check: %w", cli.Usage(errors.New("no such file"))), cli.ExitUser},
		{errors.Join(errors.New("port taken"), config.Problems{{Path: "seed", Msg: "is x"}}), cli.ExitUser},
		{fmt.Errorf("run a: %w", fault.Newf(fault.Dataset, "1 problem")), cli.ExitUser},
		{fault.Newf(fault.Store, "no such bucket"), cli.ExitSystem},
		{fmt.Errorf("%w: run a goes on", cli.ErrInterrupted), cli.ExitInterrupted},
	} {
		if got := cli.ExitCode(tt.err); got != tt.want {
			t.Errorf("%v: exit status %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestExecute gives each error its status and puts the program before each line.
func TestExecute(t *testing.T) {
	root := func() *cobra.Command {
		root := &cobra.Command{Use: "tool"}
		leaf := &cobra.Command{Use: "leaf", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return errors.Join(errors.New("one"), errors.New("two"))
		}}
		pair := &cobra.Command{Use: "pair", Args: cobra.ExactArgs(2), RunE: func(*cobra.Command, []string) error { return nil }}
		root.AddCommand(leaf, pair)
		return root
	}
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"pair", "a", "b"}, 0, ""},
		{[]string{"leaf"}, cli.ExitSystem, "tool: one\ntool: two\n"},
		{[]string{"leaf", "--frob"}, cli.ExitUser, "tool: unknown flag: --frob\n"},
		{[]string{"leaf", "x"}, cli.ExitUser, "tool: unknown command \"x\" for \"tool leaf\"\n"},
		{[]string{"pair", "a"}, cli.ExitUser, "tool: tool pair: accepts 2 arg(s), received 1\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Execute(t.Context(), root(), tt.args, &stdout, &stderr)
		if code != tt.code || stderr.String() != tt.stderr || stdout.Len() > 0 {
			t.Errorf("%v: exit status %d, stderr %q, stdout %q; want %d, %q and nothing", tt.args, code, stderr.String(), stdout.String(), tt.code, tt.stderr)
		}
	}
}
