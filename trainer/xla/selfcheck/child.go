package selfcheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"temper/trainer/device"
	"temper/trainer/xla/plugin"
)

// Patience bounds the process of a check. Compiling takes most of the time.
const Patience = 10 * time.Minute

// Child checks a backend in another process, started by the command line: that has to call
// Run and print the report as JSON, or an error of one line on its standard error. Child does
// not load a plugin that has changed since its installation. Errors: ErrFailed if a signal,
// the plugin or the time limit ended the process.
func Child(ctx context.Context, backend string, command []string) (Report, error) {
	if library := device.LibraryOf(backend); library != "" {
		if err := plugin.Verify(library); err != nil && !errors.Is(err, fs.ErrNotExist) { // other plugins have no description
			return Report{}, fmt.Errorf("backend %q: %w", backend, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // this program itself
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Report{}, fmt.Errorf("backend %q: %w: %w", backend, ErrFailed, context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited() && exit.ExitCode() <= 2 && errs.Len() > 0 && !strings.Contains(errs.String(), "goroutine "):
		return Report{}, errors.New(lastLine(errs.String()))
	case errors.As(err, &exit):
		return Report{}, fmt.Errorf("backend %q: %w: %s: %s. The plugin does not fit this program; temper backend list shows those that do",
			backend, ErrFailed, exit.ProcessState, telling(errs.String()))
	case err != nil:
		return Report{}, fmt.Errorf("backend %q: self-check: %w", backend, err)
	}
	var r Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return Report{}, fmt.Errorf("backend %q: %w: no report: %w", backend, ErrFailed, err)
	}
	return r, nil
}

// lastLine returns the last line that is not empty, without the name of the program.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if _, rest, ok := strings.Cut(line, ": "); ok {
		return rest
	}
	return line
}

// telling returns the first line that a dying process wrote, which holds the cause.
func telling(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > 200 {
		line = line[:200]
	}
	if line == "" {
		return "it wrote nothing"
	}
	return line
}

// Once is Child before a role depends on the backend. The same program does not check a plugin
// again that has passed, while its file stays the same.
func Once(ctx context.Context, backend string, command []string) error {
	library := device.LibraryOf(backend)
	if library == "" {
		return nil // the Go backend, or one without a plugin
	}
	mark, err := markOf(library, backend, command)
	if err == nil {
		if _, err := os.Stat(mark); err == nil {
			return nil
		}
	}
	if _, err := Child(ctx, backend, command); err != nil {
		return err
	}
	if mark != "" {
		_ = os.MkdirAll(filepath.Dir(mark), 0o700) // without a mark the next start checks again
		_ = os.WriteFile(mark, nil, 0o600)
	}
	return nil
}

// markOf returns the file that records that a plugin has passed with a command of a program.
func markOf(library, backend string, command []string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, path := range []string{library, command[0]} {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano())
	}
	fmt.Fprintln(h, backend, command[1:]) // with the mesh
	return filepath.Join(dir, "temper", "plugins", hex.EncodeToString(h.Sum(nil)[:16])), nil
}
