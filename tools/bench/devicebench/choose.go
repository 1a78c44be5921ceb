package devicebench

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"temper/trainer/estimate"
)

// ErrNoGPU means that nothing was named to measure and that the machine has no GPU.
var ErrNoGPU = errors.New("no GPU on this machine: neither /dev/nvidia0 nor /dev/kfd is there; DEVICE=xla:cpu tries all of this on the CPU plugin")

// Choose names the backend to measure: the one that is named, such as xla:cpu, or cuda or
// rocm by the device files of the machine, whose root is given.
func Choose(named string, root fs.FS) (backend string, err error) {
	if named != "" {
		if !strings.Contains(named, ":") {
			named = "xla:" + named
		}
		return named, nil
	}
	for _, c := range []struct{ file, backend string }{{"dev/nvidia0", "xla:cuda"}, {"dev/kfd", "xla:rocm"}} {
		if _, err := fs.Stat(root, c.file); err == nil {
			return c.backend, nil
		}
	}
	return "", ErrNoGPU
}

// PluginOf is the name under which a backend's plugin is installed; "" for a path.
func PluginOf(backend string) string {
	_, name, _ := strings.Cut(backend, ":")
	name, _, _ = strings.Cut(name, ",")
	if strings.ContainsRune(name, filepath.Separator) {
		return ""
	}
	return name
}

// onCPU says whether a backend is XLA on the CPU: small sizes, and no data sheet.
func onCPU(backend string) bool { return PluginOf(backend) == "cpu" }

// Kind finds the data sheet of a GPU: the kind that is named, or the one whose name is in
// what the machine's tools call it. ok is false where there is none; the report then has
// no share of the peak.
func Kind(ctx context.Context, named, backend string) (kind estimate.Device, ok bool, err error) {
	if named != "" {
		_, kind, err = estimate.ParseDevices(named)
		return kind, err == nil, err
	}
	kind, ok = estimate.OfPlugin(ctx, PluginOf(backend))
	return kind, ok, nil
}

// usedMemory is what all processes use of the first GPU's memory, in bytes; 0 where the
// driver does not say.
func usedMemory(ctx context.Context, backend string) int64 {
	switch PluginOf(backend) {
	case "cuda":
		line, _, _ := strings.Cut(estimate.AskDriver(ctx, "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"), "\n")
		return number(line) << 20
	case "rocm":
		files, err := filepath.Glob("/sys/class/drm/card*/device/mem_info_vram_used")
		if err != nil {
			return 0
		}
		for _, file := range files { // the first that there is
			text, err := os.ReadFile(file) //nolint:gosec // of the kernel
			if err == nil {
				return number(string(text))
			}
		}
	}
	return 0
}

func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
