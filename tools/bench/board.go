package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/board"
)

// boardFlags say what the board measures, and how it is shown.
type boardFlags struct {
	cfg      board.Config
	png      string
	asJSON   bool
	markdown bool
}

func boardCommand() *cobra.Command {
	o := boardFlags{cfg: board.Config{Places: board.Places{Python: config.DefaultProcess().Python}}}
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Compare this sandbox with the other ways to run a program that are installed here",
		Long: `Runs the same programs with the same interpreter by each way that is installed, in turns, and prints what a
call costs, what isolates it and what one that waits needs. A way that is not installed is named with how to get it.
Ways: ` + strings.Join(board.Names(), ", ") + `. Programs: ` + strings.Join(board.ProgramNames(), ", ") + ` (the last one needs sympy).`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.cfg.Python, "python", o.cfg.Python, "interpreter of all ways (TEMPER_PYTHON)")
	f.StringVar(&o.cfg.GoJudge, "go-judge", "go-judge", "go-judge's executable")
	f.StringVar(&o.cfg.CodeJudge, "code-judge", "", "folder with a checkout of Code-Judge")
	f.StringVar(&o.cfg.CodeJudgePython, "code-judge-python", "", "interpreter with what Code-Judge itself needs; --python by default")
	f.StringSliceVar(&o.cfg.Ways, "ways", nil, "ways to run, by name; all by default")
	f.StringSliceVar(&o.cfg.Programs, "programs", nil, "programs to run, by name; all by default")
	f.IntVar(&o.cfg.Rounds, "rounds", 3, "rounds, of which the median counts")
	f.DurationVar(&o.cfg.Slice, "slice", 3*time.Second, "about how long a way runs a program in a round")
	f.IntVar(&o.cfg.Concurrency, "concurrency", 0, "calls in flight of the full load; 0 = two for each core")
	f.IntVar(&o.cfg.Idle, "idle", 32, "what waits while memory is read: sessions, interpreters")
	f.StringVar(&o.png, "png", "", "file for a picture")
	f.BoolVar(&o.markdown, "markdown", false, "print Markdown")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runBoard(cmd, o) }
	return cmd
}

func runBoard(cmd *cobra.Command, o boardFlags) error {
	if o.cfg.Rounds < 1 || o.cfg.Idle < 1 || o.cfg.Concurrency < 0 || o.cfg.Slice <= 0 {
		return cli.Usagef("--rounds is %d, --idle %d, --concurrency %d and --slice %v: want at least 1, 1, 0 and a time", o.cfg.Rounds, o.cfg.Idle, o.cfg.Concurrency, o.cfg.Slice)
	}
	if err := cli.FindPython(o.cfg.Python); err != nil {
		return cli.Usage(err)
	}
	if err := o.places(); err != nil {
		return err
	}
	o.cfg.Note = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	report, err := board.Measure(cmd.Context(), o.cfg)
	if err != nil {
		return err
	}
	if o.png != "" {
		picture, err := report.PNG()
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.png, picture, 0o644); err != nil { //nolint:gosec // a picture for anybody
			return err
		}
	}
	return printBoard(cmd.OutOrStdout(), o, report)
}

// places makes the paths absolute: services run them from folders of their own.
func (o *boardFlags) places() error {
	var err error
	if o.cfg.Binary, err = temperBinary(); err != nil {
		return err
	}
	for _, path := range []*string{&o.cfg.Python, &o.cfg.CodeJudgePython, &o.cfg.GoJudge} {
		if found, err := exec.LookPath(*path); err == nil {
			*path = found
		}
		if *path != "" && strings.ContainsRune(*path, filepath.Separator) {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if o.cfg.CodeJudge != "" {
		o.cfg.CodeJudge, err = filepath.Abs(o.cfg.CodeJudge)
	}
	return err
}

func printBoard(out io.Writer, o boardFlags, report board.Report) error {
	switch {
	case o.asJSON:
		return cli.PrintJSON(out, report)
	case o.markdown:
		_, err := io.WriteString(out, report.Markdown())
		return err
	default:
		_, err := io.WriteString(out, report.Text())
		return err
	}
}
