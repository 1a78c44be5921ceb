package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Renamed maps command lines of earlier builds to what replaces them. A key is a command,
// "temper worker", or a command and one of its flags, "temper eval --version".
type Renamed map[string]string

// check finds a command of the map at the front of args. The error is one line that
// names the successor.
func (r Renamed) check(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args) // an unknown command is reported by cobra itself
	if cmd == nil {
		return nil
	}
	var words []string
	for i := 0; i < len(rest); i++ {
		if name, isFlag := strings.CutPrefix(rest[i], "--"); isFlag {
			if f := cmd.Flag(name); f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
			continue
		}
		words = append(words, rest[i])
	}
	for n := min(2, len(words)); n > 0; n-- {
		if err := r.renamed(cmd.CommandPath() + " " + strings.Join(words[:n], " ")); err != nil {
			return err
		}
	}
	return nil
}

// flag returns the successor of an unknown flag of a command, nil for none.
func (r Renamed) flag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	return r.renamed(cmd.CommandPath() + " --" + unknown.GetSpecifiedName())
}

func (r Renamed) renamed(old string) error {
	if successor, ok := r[old]; ok {
		return Usage(fmt.Errorf("%s is now: %s", old, successor))
	}
	return nil
}
