package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// requirement is the line of a requirements file that names the pinned wheel.
func (p Pin) requirement() string {
	return p.Package + "==" + p.Version + " --hash=sha256:" + p.SHA256
}

// pipArgs are the arguments of python3 that download the wheel into dir. pip reads the
// requirement from its standard input: it accepts a hash only in a requirements file.
func (p Pin) pipArgs(dir string) []string {
	tags := strings.Split(strings.TrimSuffix(p.Wheel, ".whl"), "-")
	return []string{
		"-m", "pip", "download", "--no-input", "--require-hashes", "--no-deps", "--only-binary=:all:",
		"--platform", tags[len(tags)-1], "--dest", dir, "--requirement", "/dev/stdin",
	}
}

// DownloadLine returns the shell command that downloads the wheel of p into the current
// folder, on any machine with pip.
func (p Pin) DownloadLine() string {
	return "echo '" + p.requirement() + "' | python3 " + strings.Join(p.pipArgs("."), " ")
}

// download fetches the wheel into dir by the user's pip, with the index, certificates and
// cache that pip is configured for.
func (p Pin) download(ctx context.Context, dir string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "python3", p.pipArgs(dir)...) //nolint:gosec // arguments of a pinned table
	cmd.Stdin = strings.NewReader(p.requirement() + "\n")
	cmd.Stdout = progress
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reason := lastError(stderr.String())
	if errors.Is(err, exec.ErrNotFound) || strings.Contains(reason, "No module named pip") {
		reason = "this machine has no pip"
	}
	return fmt.Errorf("%s; where pip works run: %s; then temper backend install %s --from %s",
		cmp.Or(reason, "pip: "+err.Error()), p.DownloadLine(), p.Name, p.Wheel)
}

// lastError returns the last line of pip's output that reports an error, or the last line.
func lastError(output string) string {
	last := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "ERROR: ") || line != "" && !strings.HasPrefix(last, "ERROR: ") {
			last = line
		}
	}
	return last
}
