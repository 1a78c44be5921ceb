package kernels

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"temper/internal/config"
)

// Choice is a choice of kernels; the empty one is Native.
type Choice string

// The choices.
const (
	// Native kernels are the fastest ones for the CPU.
	Native Choice = config.KernelsNative
	// Portable kernels give the same bits on every CPU with AVX2 and FMA.
	Portable Choice = config.KernelsPortable
)

// Variant names a kind of kernels.
type Variant string

// The variants.
const (
	AVX512 Variant = "avx512"
	AVX2   Variant = "avx2"
	Scalar Variant = "scalar" // plain Go: no SIMD in the binary or in the CPU
)

// Kernels describes everything that decides the last bits of the CPU backend's results. Bits
// compares two of them.
type Kernels struct {
	// CPU is the name of the CPU. It decides no bits.
	CPU string `json:"cpu,omitempty"`
	// Arch is the architecture of the binary, with its level: amd64/v1.
	Arch string `json:"arch"`
	// Features of the CPU that kernels use, sorted, without those that the environment
	// switches off.
	Features []string `json:"features"`
	// Choice is native or portable.
	Choice Choice `json:"choice"`
	// Variant of the kernels of products, sums and attention under the choice.
	Variant Variant `json:"variant"`
	// PanelDepth is the number of terms of a product that are added in one chain.
	PanelDepth int `json:"panel_depth"`
	// Elementwise names the functions of single elements, such as exp: simd, emulated or
	// scalar.
	Elementwise string `json:"elementwise"`
	// Softmax is the number of lanes in which the backend's softmax adds; 1 with portable
	// kernels, which have no softmax.
	Softmax int `json:"softmax"`
	// Backend is the module of the backend with its version, and the toolchain.
	Backend string `json:"backend"`
	// Switches are variables of the environment that change the backend's kernels.
	Switches []string `json:"switches,omitempty"`
}

// Describe returns the kernels of a choice in this process, always the same.
func Describe(c Choice) Kernels {
	return Kernels{
		CPU: cpuName(), Arch: archLevel(), Features: features(), Choice: c.orNative(), Variant: variantOf(c),
		PanelDepth: depthOf(c), Elementwise: elementwise(), Softmax: softmaxOf(c), Backend: backendVersion(), Switches: switches(os.Environ()),
	}
}

// orNative replaces the empty choice.
func (c Choice) orNative() Choice {
	if c == "" {
		return Native
	}
	return c
}

// Bits returns one line with everything that decides bits. If two lines are equal, the same
// computation has the same bits.
func (k Kernels) Bits() string {
	parts := []string{
		"variant=" + string(k.Variant), fmt.Sprintf("panel_depth=%d", k.PanelDepth), fmt.Sprintf("softmax=%d", k.Softmax),
		"elementwise=" + k.Elementwise, fmt.Sprintf("fma=%v", k.fma()), "arch=" + k.Arch, "backend=" + k.Backend,
	}
	if len(k.Switches) > 0 {
		parts = append(parts, "switches="+strings.Join(k.Switches, ","))
	}
	return strings.Join(parts, " ")
}

// Differences returns the settings in which k and o have different bits, with both values;
// empty for none.
func (k Kernels) Differences(o Kernels) []string {
	var out []string
	differ := func(name, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("%s %s, not %s", name, a, b))
		}
	}
	differ("kernels of products, sums and attention", string(k.Variant), string(o.Variant))
	differ("panels of products", fmt.Sprint(k.PanelDepth), fmt.Sprint(o.PanelDepth))
	differ("lanes of softmax", fmt.Sprint(k.Softmax), fmt.Sprint(o.Softmax))
	differ("functions of elements", k.Elementwise, o.Elementwise)
	differ("fma in package math", fmt.Sprint(k.fma()), fmt.Sprint(o.fma()))
	differ("architecture", k.Arch, o.Arch)
	differ("backend", k.Backend, o.Backend)
	differ("switches", strings.Join(k.Switches, ","), strings.Join(o.Switches, ","))
	return out
}

// fma reports whether package math uses fused multiply-add.
func (k Kernels) fma() bool { return slices.Contains(k.Features, "fma") }

// softmaxOf returns the number of lanes of softmax under a choice.
func softmaxOf(c Choice) int {
	if c == Portable {
		return 1
	}
	return vectorLanes()
}

// Line describes the kernels as one line of text.
func (k Kernels) Line() string {
	name := k.CPU
	if name == "" {
		name = "unknown CPU"
	}
	found := strings.Join(k.Features, ", ")
	if found == "" {
		found = "no vectors in use"
	}
	return fmt.Sprintf("%s (%s, %s): %s kernels, %s", name, k.Arch, found, k.Variant, k.Backend)
}

// Check returns an error of one line if this process has no kernels of a choice.
func Check(c Choice) error {
	switch c.orNative() {
	case Native:
		return nil
	case Portable:
		return checkPortable(os.Environ())
	}
	return fmt.Errorf("%q: want %s or %s", c, Native, Portable)
}

// checkPortable returns the reason why an environment has no portable kernels.
func checkPortable(environ []string) error {
	switch {
	case elementwise() == "emulated":
		return errors.New("GODEBUG=simd=0 emulates vectors and rounds otherwise than portable kernels; unset it")
	case nativeVariant() == Scalar:
		return fmt.Errorf("portable kernels need a CPU with AVX2 and a binary built with GOEXPERIMENT=simd for amd64; this process computes in plain Go on %s", archLevel())
	case !slices.Contains(features(), "fma"):
		return errors.New("portable kernels need a CPU with FMA")
	}
	for _, s := range switches(environ) {
		if name, _, _ := strings.Cut(s, "="); slices.Contains(reordering, name) {
			return fmt.Errorf("%s changes the order of sums in portable kernels; unset it", s)
		}
	}
	return nil
}

// reordering are the switches that change the order of sums in the kernels for AVX2.
var reordering = []string{"GOMLX_GO_AVX2_KC", "GOMLX_GO_AVX2_ASM", "GOMLX_GO_DOT_MATMUL", "GOMLX_GO_FUSION"}

// switches returns the backend's variables of an environment, sorted, without those that only
// choose a variant or the size of blocks in caches.
func switches(environ []string) []string {
	var out []string
	for _, s := range environ {
		name, _, _ := strings.Cut(s, "=")
		if strings.HasPrefix(name, "GOMLX_GO_") && !slices.Contains(harmless, name) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// harmless are the backend's variables that decide no bits beside the Variant.
var harmless = []string{
	"GOMLX_GO_SIMD_AVX512", "GOMLX_GO_SIMD_AVX2",
	"GOMLX_GO_AVX512_MC", "GOMLX_GO_AVX512_NC", "GOMLX_GO_AVX2_MC", "GOMLX_GO_AVX2_NC", "GOMLX_GO_NOSIMD_MC", "GOMLX_GO_NOSIMD_NC",
}

// archLevel returns the architecture with the level of its instructions. At a higher level the
// compiler contracts a product and a sum of plain Go into one rounding.
func archLevel() string {
	level := map[string]string{"amd64": "GOAMD64", "arm64": "GOARM64"}[runtime.GOARCH]
	if info, ok := debug.ReadBuildInfo(); ok && level != "" {
		for _, s := range info.Settings {
			if s.Key == level {
				return runtime.GOARCH + "/" + s.Value
			}
		}
	}
	return runtime.GOARCH
}

// backendModule implements the CPU backend.
const backendModule = "github.com/gomlx/compute"

// backendVersion returns the module of the backend with its version, and the toolchain.
func backendVersion() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == backendModule {
				version = " " + m.Version
			}
		}
	}
	return backendModule + version + ", " + runtime.Version()
}

// cpuName returns the CPU's name in /proc/cpuinfo, empty for none.
func cpuName() string {
	data, err := os.ReadFile("/proc/cpuinfo") // Linux alone has this file
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
