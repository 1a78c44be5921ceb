package board

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// startPlain starts a new interpreter for each call, with no isolation.
func startPlain(_ context.Context, cfg Config) (*running, error) {
	return command([]string{cfg.Python, "-I", "-c"}, "none"), nil
}

// startBubblewrap does it within new namespaces that show what the interpreter needs.
func startBubblewrap(ctx context.Context, cfg Config) (*running, error) {
	prefixes, err := pythonPrefixes(ctx, cfg.Python)
	if err != nil {
		return nil, err
	}
	// As the first process of its namespace the interpreter is waited for, and its time
	// counted; bwrap does not wait for a first process of its own.
	args := []string{
		"bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
	}
	for _, dir := range systemFolders() {
		args = append(args, "--ro-bind", dir, dir)
	}
	for _, dir := range prefixes {
		args = append(args, "--ro-bind", dir, dir)
	}
	return command(append(args, "--chdir", "/tmp", cfg.Python, "-I", "-c"), "all namespaces, read-only root of the system's folders, tmpfs, no capabilities"), nil
}

// command is a way that starts args for each call. Its processor time is that of
// this process, which starts it, and of the children.
func command(args []string, layers string) *running {
	return &running{
		target: loadgen.FromCommand(args...), cpu: loadgen.CPU{Own: true}, layers: layers, unit: "interpreter",
		idle: func(ctx context.Context, n int) (int64, error) { return idleCommands(ctx, args, n) },
		stop: func() error { return nil },
	}
}

// idleCommands keeps n interpreters waiting for their input, and returns the memory
// of one.
func idleCommands(ctx context.Context, args []string, n int) (sum int64, err error) {
	args = append(args[:len(args):len(args)], "print('ready', flush=True)\ninput()")
	var waiting []func() error
	defer func() {
		for _, end := range waiting {
			err = errors.Join(err, end())
		}
	}()
	pids := make([]int, n)
	for i := range n {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the way that is measured
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		pids[i] = cmd.Process.Pid
		waiting = append(waiting, func() error {
			_, _ = io.WriteString(in, "\n") // one that has ended is noticed by Wait
			return cmd.Wait()
		})
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			return 0, fmt.Errorf("an idle interpreter: %w", err)
		}
	}
	for _, pid := range pids {
		sum += meter.Memory(pid)
	}
	return sum / int64(n), nil
}

// systemFolders are those that a dynamically linked program needs, where they exist.
func systemFolders() []string {
	return slices.DeleteFunc([]string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"}, func(dir string) bool {
		_, err := os.Stat(dir)
		return err != nil
	})
}

// askPython runs a line of Python that prints words.
func askPython(ctx context.Context, python, line string) ([]string, error) {
	out, err := exec.CommandContext(ctx, python, "-I", "-c", "import platform, sys\n"+line).Output() //nolint:gosec // the caller's interpreter
	if err != nil {
		return nil, fmt.Errorf("%s: %w", python, err)
	}
	return strings.Fields(string(out)), nil
}

// pythonVersion is such as CPython 3.11.2.
func pythonVersion(ctx context.Context, python string) (string, error) {
	words, err := askPython(ctx, python, "print(platform.python_implementation(), platform.python_version())")
	return strings.Join(words, " "), err
}

// pythonPrefixes are the installations that an interpreter reads, without those that
// the system's folders hold.
func pythonPrefixes(ctx context.Context, python string) ([]string, error) {
	prefixes, err := askPython(ctx, python, "print(sys.prefix, sys.base_prefix)")
	slices.Sort(prefixes)
	return slices.DeleteFunc(slices.Compact(prefixes), func(dir string) bool { return dir == "/usr" || strings.HasPrefix(dir, "/usr/") }), err
}
