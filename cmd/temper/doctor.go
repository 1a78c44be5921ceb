package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/supervise"
	"temper/sandbox/jail"
	"temper/workers"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine and this binary can do, and what is missing",
		Args:  cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.Validate(); err != nil {
			return err
		}
		return examine(cmd.Context(), p, cmd.OutOrStdout())
	}
	return cmd
}

// examine prints one line for each finding; missing parts that stop the
// embedded service make the error.
func examine(ctx context.Context, p *config.Process, out io.Writer) error {
	missing := 0
	say := func(ok bool, what, detail string) {
		mark := "ok  "
		if !ok {
			mark, missing = "MISS", missing+1
		}
		fmt.Fprintf(out, "%s  %-18s %s\n", mark, what, detail)
	}
	say(buildinfo.SIMD, "binary", buildinfo.Line())
	say(true, "backend", "go (pure Go, SIMD kernels); no XLA or ONNX Runtime backend compiled in")
	path, err := exec.LookPath(p.Python)
	say(err == nil, "python", describe(path, err))
	if err == nil {
		sandboxFindings(ctx, path, out, say)
	}
	if self, err := os.Executable(); err == nil {
		temporald := filepath.Join(filepath.Dir(self), "temporald")
		_, err := os.Stat(temporald)
		say(err == nil, "temporald", describe(temporald, err))
	}
	storeFinding(ctx, p, say)
	for _, l := range []struct{ name, addr string }{
		{"temporal port", p.TemporalAddress}, {"web UI port", p.UIAddress}, {"sandbox port", p.SandboxAddress},
	} {
		detail := l.addr + " is free"
		if err := supervise.CheckListen(l.addr); err != nil {
			detail = err.Error() + " (fine when that is this service)"
		}
		fmt.Fprintf(out, "      %-18s %s\n", l.name, detail)
	}
	if missing > 0 {
		return fmt.Errorf("%d finding(s) marked MISS", missing)
	}
	return nil
}

// storeFinding uses all that a run needs of the store on a key of its own.
func storeFinding(ctx context.Context, p *config.Process, say func(bool, string, string)) {
	if place, err := p.StorePlace(); err == nil && place.Kind == config.StoreS3D && supervise.CheckListen(storeAddress(place)) == nil {
		path, err := s3dPath()
		if err == nil {
			err = findS3D()
		}
		say(err == nil, "store", describe(path+", which temper up starts on "+storeAddress(place), err))
		return
	}
	store, err := openStore(ctx, p)
	if err != nil {
		say(false, "store", err.Error())
		return
	}
	err = workers.ProbeStore(ctx, store)
	say(err == nil, "store", describe(store.Locate("")+" takes conditional writes, swaps, reads, listings and deletions", err))
}

func describe(what string, err error) string {
	if err != nil {
		return err.Error()
	}
	return what
}

// sandboxFindings starts a jail for a moment to see which layers hold.
func sandboxFindings(ctx context.Context, python string, out io.Writer, say func(bool, string, string)) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	j, err := jail.New(ctx, jail.Config{Python: python, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		say(false, "sandbox", err.Error())
		return
	}
	defer j.Close() //nolint:errcheck // nothing ran in it
	r := j.Report()
	say(true, "sandbox", fmt.Sprintf("%s mode, Python %s", r.Mode, r.Version))
	for _, l := range r.Layers {
		fmt.Fprintf(out, "        %-16s %s\n", l.Name, layerState(l))
	}
	fmt.Fprintf(out, "      %-18s %s\n", "numeric profile", numericFinding(r.Heavy))
}

// numericFinding tells which modules of the numeric profile can be imported.
func numericFinding(installed []string) string {
	var found, absent []string
	for _, name := range []string{"numpy", "sympy", "scipy"} {
		if slices.Contains(installed, name) {
			found = append(found, name)
		} else {
			absent = append(absent, name)
		}
	}
	switch {
	case len(absent) == 0:
		return strings.Join(found, ", ")
	case len(found) == 0:
		return "none of " + strings.Join(absent, ", ") + ": programs that import them fail"
	default:
		return strings.Join(found, ", ") + "; not installed: " + strings.Join(absent, ", ")
	}
}
