package board

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// kind is a way that the board knows.
type kind struct {
	name string
	// missing says what is not installed and how to get it, "" when all is there.
	missing func(cfg Config) string
	start   func(ctx context.Context, cfg Config) (*running, error)
}

// running is a way that has been started.
type running struct {
	target loadgen.Target
	cpu    loadgen.CPU
	layers string
	unit   string // of idle
	// idle measures the memory of one unit of n that wait for a call.
	idle func(ctx context.Context, n int) (int64, error)
	stop func() error
}

// kinds are all ways, ours first.
func kinds() []kind {
	return []kind{
		{"temper", func(Config) string { return "" }, startTemper},
		{"code-judge", missingCodeJudge, startCodeJudge},
		{"go-judge", missingGoJudge, startGoJudge},
		{"bubblewrap + python", func(Config) string {
			return missingCommand("bwrap", "install Debian's package bubblewrap, or what your system calls it")
		}, startBubblewrap},
		{"plain python", func(Config) string { return "" }, startPlain},
	}
}

// Names are the names of all ways.
func Names() []string {
	var out []string
	for _, k := range kinds() {
		out = append(out, k.name)
	}
	return out
}

// programs are what every way runs.
func programs() []loadgen.Program {
	return []loadgen.Program{
		{Name: "print", Code: "print(1+1)", Want: "2"},
		{
			Name: "compute", Want: "972841",
			Code: "n = 0\nfor i in range(100000):\n    n = (n * 31 + i) % 9999991\nprint(n)",
		},
		loadgen.Sympy(),
	}
}

// ProgramNames are the names of all programs.
func ProgramNames() []string {
	return meter.Pick(programs(), func(p loadgen.Program) string { return p.Name })
}

// choose returns the ways and programs of the configuration.
func (c Config) choose() ([]kind, []loadgen.Program, error) {
	ways, all := kinds(), programs()
	for _, name := range c.Ways {
		if !slices.Contains(Names(), name) {
			return nil, nil, fmt.Errorf("way %q: want some of %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, name := range c.Programs {
		if !slices.Contains(ProgramNames(), name) {
			return nil, nil, fmt.Errorf("program %q: want some of %s", name, strings.Join(ProgramNames(), ", "))
		}
	}
	if len(c.Ways) > 0 {
		ways = slices.DeleteFunc(ways, func(k kind) bool { return !slices.Contains(c.Ways, k.name) })
	}
	if len(c.Programs) > 0 {
		all = slices.DeleteFunc(all, func(p loadgen.Program) bool { return !slices.Contains(c.Programs, p.Name) })
	}
	return ways, all, nil
}

func missingCommand(name, how string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not on the path: " + how
	}
	return ""
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func loadAverages() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return "unknown"
}
