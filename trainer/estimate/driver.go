package estimate

import (
	"cmp"
	"context"
	"os/exec"
	"strings"
	"time"
)

// OfPlugin returns the data sheet of the machine's GPUs, driven by a plugin such as cuda, by the
// names that the driver's programs print. ok is false for an unknown kind.
func OfPlugin(ctx context.Context, plugin string) (d Device, ok bool) {
	text := strings.ToUpper(driverNames(ctx, plugin))
	for _, d := range Devices() {
		name, size, _ := strings.Cut(d.Name, "-") // A100-80 is called A100-SXM4-80GB
		if d.Fused && strings.Contains(text, strings.ToUpper(name)) && strings.Contains(text, size) {
			return d, true
		}
	}
	return Device{}, false
}

// driverNames returns the driver's names of the machine's GPUs; "" for none.
func driverNames(ctx context.Context, plugin string) string {
	switch plugin {
	case "cuda":
		return AskDriver(ctx, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
	case "rocm":
		return cmp.Or(AskDriver(ctx, "amd-smi", "static", "--asic"), AskDriver(ctx, "rocm-smi", "--showproductname"))
	}
	return ""
}

// AskDriver returns the output of a program of a driver; "" if it is missing or fails.
func AskDriver(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // fixed names
	if err != nil {
		return ""
	}
	return string(out)
}
