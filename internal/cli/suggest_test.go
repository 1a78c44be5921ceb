package cli_test

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"temper/internal/cli"
)

// TestSuggestions: a mistyped command of any group and a mistyped flag are answered
// with what is near, in one line and with the status of a user's mistake.
func TestSuggestions(t *testing.T) {
	root := func() *cobra.Command {
		help := func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, RunE: help}
		group := &cobra.Command{Use: "run", Args: cobra.NoArgs, RunE: help}
		for _, name := range []string{"list", "status", "stop", "submit"} {
			leaf := &cobra.Command{Use: name, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
			leaf.Flags().String("config", "", "")
			leaf.Flags().Bool("json", false, "")
			group.AddCommand(leaf)
		}
		root.AddCommand(group)
		return root
	}
	for _, tt := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"rum"}, "tool: unknown command \"rum\" for \"tool\": did you mean run?\n"},
		{[]string{"run", "lst"}, "tool: unknown command \"lst\" for \"tool run\": did you mean list?\n"},
		{[]string{"run", "st"}, "tool: unknown command \"st\" for \"tool run\": did you mean list or status or stop?\n"},
		{[]string{"run", "frobnicate"}, "tool: unknown command \"frobnicate\" for \"tool run\" (tool run --help lists the commands)\n"},
		{[]string{"run", "list", "--jsno"}, "tool: unknown flag: --jsno: did you mean --json?\n"},
		{[]string{"run", "list", "--frobnicate"}, "tool: unknown flag: --frobnicate\n"},
		{[]string{"run", "list", "-z"}, "tool: unknown shorthand flag: 'z' in -z\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Execute(t.Context(), root(), tt.args, &stdout, &stderr)
		if code != cli.ExitUser || stderr.String() != tt.stderr || stdout.Len() > 0 {
			t.Errorf("%v: exit status %d, stderr %q, stdout %q; want %d and %q", tt.args, code, stderr.String(), stdout.String(), cli.ExitUser, tt.stderr)
		}
	}
}
