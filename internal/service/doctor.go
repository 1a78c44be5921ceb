package service

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

	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/sandbox/jail"
	"temper/trainer/cpu/kernels"
	"temper/workers"
)

// State says what a finding means for the service.
type State string

// The states of a finding.
const (
	OK      State = "ok"
	Missing State = "missing" // the embedded service does not work without it
	Note    State = "note"
)

// Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
	// Parts are what it consists of.
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of a finding, which may be off.
type Part struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
}

// Examine looks at everything, in the order in which the service needs it.
func Examine(ctx context.Context, p *config.Process) []Finding {
	out := []Finding{
		finding(buildinfo.SIMD, "binary", buildinfo.Line()),
		finding(true, "backend", "go (pure Go, SIMD kernels); no XLA backend compiled in"),
		{Name: "kernels", State: Note, Detail: computing()},
	}
	path, err := exec.LookPath(p.Python)
	out = append(out, found("python", path, err))
	if err == nil {
		out = append(out, sandbox(ctx, path)...)
	}
	if self, err := os.Executable(); err == nil {
		temporald := filepath.Join(filepath.Dir(self), "temporald")
		_, err := os.Stat(temporald)
		out = append(out, found("temporald", temporald, err))
	}
	out = append(out, store(ctx, p))
	for _, l := range []struct{ name, addr string }{
		{"temporal port", p.TemporalAddress}, {"web UI port", p.UIAddress}, {"sandbox port", p.SandboxAddress},
	} {
		detail := l.addr + " is free"
		if err := proc.CheckListen(l.addr); err != nil {
			detail = err.Error() + " (fine when that is this service)"
		}
		out = append(out, Finding{Name: l.name, State: Note, Detail: detail})
	}
	return out
}

// computing describes the kernels of the CPU backend, which decide the last bits of a run.
func computing() string {
	line := kernels.Describe(kernels.Native).Line()
	if err := kernels.Check(kernels.Portable); err != nil {
		return line + "; no portable ones: " + err.Error()
	}
	return line + "; portable ones: " + string(kernels.Describe(kernels.Portable).Variant)
}

// NumMissing counts what the embedded service lacks.
func NumMissing(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.State == Missing {
			n++
		}
	}
	return n
}

// Print writes a line for each finding and each of its parts.
func Print(out io.Writer, findings []Finding) error {
	marks := map[State]string{OK: "ok  ", Missing: "MISS", Note: "    "}
	for _, f := range findings {
		if _, err := fmt.Fprintf(out, "%s  %-18s %s\n", marks[f.State], f.Name, f.Detail); err != nil {
			return err
		}
		for _, part := range f.Parts {
			if _, err := fmt.Fprintf(out, "        %-16s %s\n", part.Name, part.Detail); err != nil {
				return err
			}
		}
	}
	return nil
}

// found is a finding that is there unless err says why not.
func found(name, detail string, err error) Finding {
	if err != nil {
		return finding(false, name, err.Error())
	}
	return finding(true, name, detail)
}

func finding(ok bool, name, detail string) Finding {
	f := Finding{Name: name, State: OK, Detail: detail}
	if !ok {
		f.State = Missing
	}
	return f
}

// store tries every operation that a run needs of the store, on a new key.
func store(ctx context.Context, p *config.Process) Finding {
	if place, err := p.StorePlace(); err == nil && place.Kind == config.StoreS3D && proc.CheckListen(StoreAddress(place)) == nil {
		path, err := StoreServerPath()
		if err == nil {
			err = FindStoreServer()
		}
		return found("store", path+", which temper up starts on "+StoreAddress(place), err)
	}
	s, err := workers.OpenStore(ctx, p)
	if err != nil {
		return finding(false, "store", err.Error())
	}
	return found("store", s.Locate("")+" takes conditional writes, swaps, reads, listings and deletions", workers.ProbeStore(ctx, s))
}

// sandbox starts a jail for a moment to see which layers hold.
func sandbox(ctx context.Context, python string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	j, err := jail.New(ctx, jail.Config{Python: python, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return []Finding{finding(false, "sandbox", err.Error())}
	}
	defer j.Close() //nolint:errcheck // nothing ran in it
	r := j.Report()
	f := finding(true, "sandbox", fmt.Sprintf("%s mode, Python %s", r.Mode, r.Version))
	for _, l := range r.Layers {
		f.Parts = append(f.Parts, Part{Name: l.Name, Detail: l.State()})
	}
	found := []Finding{f, {Name: "numeric profile", State: Note, Detail: numericProfile(r.Heavy)}}
	for _, line := range r.Hidden() {
		found = append(found, Finding{Name: "left out", State: Note, Detail: line})
	}
	return found
}

// numericProfile says which modules of the numeric profile can be imported.
func numericProfile(installed []string) string {
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
