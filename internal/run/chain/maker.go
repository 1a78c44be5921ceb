package chain

import (
	"bufio"
	"cmp"
	"os"
	"runtime"
	"slices"
	"strings"

	"temper/internal/proc/buildinfo"
)

// Maker is a program on a machine that made a part of a run.
type Maker struct {
	// Role is what it did: control, rollout or trainer.
	Role string `json:"role"`
	// Build is the revision, Go the toolchain.
	Build string `json:"build"`
	Go    string `json:"go"`
	// CPU is the model as the kernel names it. Features are the instruction sets of the CPU
	// that decide bits.
	CPU      string   `json:"cpu,omitempty"`
	Features []string `json:"features,omitempty"`
	// Backend computes: the CPU backend, or a device. Kernels are what decides the last
	// bits of it under the run's configuration, as names and values.
	Backend string `json:"backend,omitempty"`
	Kernels string `json:"kernels,omitempty"`
}

// bitFeatures are the instruction sets that kernels choose by: their width decides the
// order of sums.
var bitFeatures = []string{"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "asimd", "sve"}

// ThisMaker describes this program and machine in a role.
func ThisMaker(role, backend string) Maker {
	m := Maker{Role: role, Build: buildinfo.Build(), Go: runtime.Version(), Backend: backend}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil { // another system: the build names it
		m.CPU = runtime.GOARCH
		return m
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			m.CPU = strings.TrimSpace(value)
		case "flags", "Features":
			have := strings.Fields(value)
			for _, name := range bitFeatures {
				if slices.Contains(have, name) {
					m.Features = append(m.Features, name)
				}
			}
		}
	}
	m.CPU = cmp.Or(m.CPU, runtime.GOARCH)
	return m
}

// String is the maker in one line.
func (m Maker) String() string {
	parts := []string{m.Role, "temper " + m.Build, m.Go, m.CPU, strings.Join(m.Features, " "), m.Backend, m.Kernels}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// AddMaker adds a maker unless it is there. It ignores a zero maker.
func AddMaker(all []Maker, m Maker) []Maker {
	if m.Role == "" || slices.ContainsFunc(all, m.same) {
		return all
	}
	return append(all, m)
}

func (m Maker) same(o Maker) bool {
	return m.Role == o.Role && m.Build == o.Build && m.Go == o.Go && m.CPU == o.CPU && m.Backend == o.Backend && m.Kernels == o.Kernels && slices.Equal(m.Features, o.Features)
}
