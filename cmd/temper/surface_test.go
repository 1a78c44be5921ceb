package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"temper/internal/cli"
)

// What a person has to find their way through. A flag place is a flag on a command;
// a flag that a command inherits has its place at the top.
const (
	maxCommands   = 80
	maxFlagPlaces = 400
	maxLines      = 6000 // of this package, without tests
)

// instruments are the commands that measure the product and are no part of it.
const instruments = "bench"

// eachCommand visits the commands of a tree, the instruments left out.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.Name() != instruments {
			eachCommand(sub, visit)
		}
	}
}

// TestSurfaceStaysSmall counts commands, flags and lines.
func TestSurfaceStaysSmall(t *testing.T) {
	commands, flags := 0, 0
	eachCommand(rootCommand(), func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			commands++
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				flags++
			}
		})
	})
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(data, []byte("\n"))
	}
	t.Logf("%d commands, %d flag places, %d lines", commands, flags, lines)
	for _, c := range []struct {
		what      string
		got, most int
	}{{"commands", commands, maxCommands}, {"flag places", flags, maxFlagPlaces}, {"lines", lines, maxLines}} {
		if c.got > c.most {
			t.Errorf("%d %s, at most %d: find what the new one replaces", c.got, c.what, c.most)
		}
	}
}

// TestRenamedNamesTheSuccessor: each line of the table is refused with one line, and what
// it names is there.
func TestRenamedNamesTheSuccessor(t *testing.T) {
	for _, old := range slices.Sorted(maps.Keys(renamed())) {
		var stdout, stderr bytes.Buffer
		args := strings.Fields(old)[1:]
		code := execute(append(args, "x"), &stdout, &stderr)
		want := "temper: " + old + " is now: " + renamed()[old] + "\n"
		if code != cli.ExitUser || stderr.String() != want || stdout.Len() > 0 {
			t.Errorf("%s: exit status %d, %q; want %d, %q", old, code, stderr.String(), cli.ExitUser, want)
		}
		if problem := checkLine(renamed()[old]); problem != "" {
			t.Errorf("%s is renamed to what is not there: %s", old, problem)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := execute([]string{"--home", t.TempDir(), "worker", "--rollout-shards", "2"}, &stdout, &stderr); code != cli.ExitUser || !strings.Contains(stderr.String(), "temper role control") {
		t.Errorf("with flags: exit status %d, %q", code, stderr.String())
	}
}

// checkLine returns what is wrong with a command line that a person is told to type,
// "" for nothing. Values in capitals stand for anything.
func checkLine(line string) string {
	words := strings.Fields(line)
	cmd, rest, err := rootCommand().Find(words[1:])
	if err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() {
		for _, word := range rest {
			if !strings.HasPrefix(word, "-") && word == strings.ToLower(word) && !strings.ContainsAny(word, "/.=") {
				return "no command " + cmd.CommandPath() + " " + word
			}
		}
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		if !isFlag || name == "" {
			continue
		}
		name, _, _ = strings.Cut(name, "=")
		if name != "help" && cmd.Flag(name) == nil {
			return cmd.CommandPath() + " has no flag --" + name
		}
	}
	return ""
}
