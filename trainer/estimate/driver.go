package estimate

import (
	"cmp"
	"context"
	"os/exec"
	"strings"
	"time"
)

// OfPlugin finds the data sheet of the machine's GPUs, which a plugin such as cuda drives, by
// what the programs of their driver call them. ok is false where none of the known kinds is
// among them.
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

// driverNames is what the driver calls the machine's GPUs; "" where nobody says.
func driverNames(ctx context.Context, plugin string) string {
	switch plugin {
	case "cuda":
		return AskDriver(ctx, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
	case "rocm":
		return cmp.Or(AskDriver(ctx, "amd-smi", "static", "--asic"), AskDriver(ctx, "rocm-smi", "--showproductname"))
	}
	return ""
}

// AskDriver returns what a program of a driver prints; "" where it is not there or fails.
func AskDriver(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // names of ours
	if err != nil {
		return ""
	}
	return string(out)
}
