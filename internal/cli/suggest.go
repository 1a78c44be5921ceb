package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"temper/internal/config"
)

// maxEdits is how many letters a mistyped name may differ from what was meant.
const maxEdits = 2

// unknownCommand returns the error of an unknown command, which suggests similar names.
func unknownCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := meant(name, names)
	if hint == "" {
		hint = fmt.Sprintf(" (%s --help lists the commands)", group.CommandPath())
	}
	return fmt.Errorf("unknown command %q for %q%s", name, group.CommandPath(), hint)
}

// suggestFlag adds to the error of an unknown flag its successor or flags with similar names.
func suggestFlag(c *cobra.Command, old Renamed, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	if renamed := old.flag(c, unknown); renamed != nil {
		return renamed
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, meant("--"+unknown.GetSpecifiedName(), names))
}

// meant is the end of a line that names what is near to a mistyped name, "" for none.
func meant(name string, known []string) string {
	var near []string
	for _, k := range known {
		if strings.HasPrefix(k, name) || config.Edits(name, k) <= maxEdits {
			near = append(near, k)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(near, " or ") + "?"
}
