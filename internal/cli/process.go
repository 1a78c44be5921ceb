package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"temper/internal/config"
)

// PlaceFlags adds the flags that name the places of a service: its folder, its store,
// its Temporal server and its sandbox. A root command adds them once, for all its commands.
func PlaceFlags(f *pflag.FlagSet) *config.Process {
	p := config.DefaultProcess()
	f.StringVar(&p.Home, "home", p.Home, "folder of the store, the logs and the embedded Temporal database (TEMPER_HOME)")
	f.StringVar(&p.Store, "store", p.Store, "URL of the store: file:///dir, s3://bucket/prefix or minio://host:port/bucket/prefix, or s3d://127.0.0.1:port for the server of temper up; default files below --home (TEMPER_STORE)")
	f.StringVar(&p.TemporalAddress, "temporal", p.TemporalAddress, "host:port of the Temporal frontend (TEMPORAL_ADDRESS)")
	f.StringVar(&p.Namespace, "namespace", p.Namespace, "Temporal namespace (TEMPORAL_NAMESPACE)")
	f.StringVar(&p.UIAddress, "ui", p.UIAddress, "host:port of the Temporal web UI (TEMPER_UI_ADDRESS)")
	f.StringVar(&p.SandboxAddress, "sandbox", p.SandboxAddress, "host:port of the sandbox node (TEMPER_SANDBOX_ADDRESS)")
	return &p
}

// PythonFlag adds the flag of a command that starts interpreters.
func PythonFlag(f *pflag.FlagSet, p *config.Process) {
	f.StringVar(&p.Python, "python", p.Python, "interpreter that the sandbox runs (TEMPER_PYTHON)")
}

// ProcessFlags adds all of them to one command.
func ProcessFlags(cmd *cobra.Command) *config.Process {
	p := PlaceFlags(cmd.Flags())
	PythonFlag(cmd.Flags(), p)
	return p
}

// NewLogger writes text for people on a terminal and JSON elsewhere.
func NewLogger(role string) *slog.Logger {
	var h slog.Handler = slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})
	if term.IsTerminal(int(os.Stderr.Fd())) {
		h = tint.NewTextHandler(os.Stderr, nil)
	}
	return slog.New(h).With("role", role)
}

// FindPython reports what to do when there is no such interpreter.
func FindPython(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("python %q not found: install python3 or name an interpreter with --python", name)
	}
	return nil
}

// PrintJSON prints v for machines, indented.
func PrintJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// PrintLines prints each value as a line of JSON.
func PrintLines[T any](out io.Writer, values []T) error {
	enc := json.NewEncoder(out)
	for _, v := range values {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
