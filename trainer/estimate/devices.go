package estimate

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"temper/trainer/xla/flash"
)

// Device is a kind of accelerator.
type Device struct {
	Name string `json:"name"`
	// Memory in bytes. A maker's GB counts as 10^9, its smallest meaning.
	Memory int64 `json:"memory"`
	// FLOPS is the peak of dense matrix products, in operations a second: bfloat16 with
	// float32 sums on a GPU, float32 on a CPU.
	FLOPS float64 `json:"flops"`
	// Fused is true for XLA and false for the Go backend; see the package's documentation.
	Fused bool `json:"fused"`
	// Block is the most tokens of a block of attention in loops; 0 is the block of XLA on a
	// CPU.
	Block int `json:"block,omitempty"`
}

const gb = 1_000_000_000

// Devices lists the known kinds, the CPU of this machine last. Peaks are from the
// makers' data sheets. For the CPU it is 235 GFLOP/s a core, measured in a float32
// product of the Go backend.
func Devices() []Device {
	return []Device{
		{Name: "MI300X", Memory: 192 * gb, FLOPS: 1307.4e12, Fused: true, Block: flash.MaxBlockGPU},
		{Name: "H200", Memory: 141 * gb, FLOPS: 989.5e12, Fused: true, Block: flash.MaxBlockGPU},
		{Name: "H100", Memory: 80 * gb, FLOPS: 989.5e12, Fused: true, Block: flash.MaxBlockGPU},
		{Name: "A100-80", Memory: 80 * gb, FLOPS: 312e12, Fused: true, Block: flash.MaxBlockGPU},
		{Name: "A100-40", Memory: 40 * gb, FLOPS: 312e12, Fused: true, Block: flash.MaxBlockGPU},
		{Name: "CPU", Memory: ram(), FLOPS: 235e9 * float64(runtime.NumCPU())},
	}
}

// mostDevices bounds the devices of a plan: every mesh of them is tried.
const mostDevices = 1 << 16

// ParseDevices parses a number of devices of one kind, like 8xMI300X or CPU.
func ParseDevices(s string) (int, Device, error) {
	count, name, times := strings.Cut(s, "x")
	n := 1
	if times {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 || n > mostDevices {
			return 0, Device{}, fmt.Errorf("devices %q: want a number from 1 to %d and a kind, like 8xMI300X", s, mostDevices)
		}
	} else {
		name = s
	}
	all := Devices()
	i := slices.IndexFunc(all, func(d Device) bool { return strings.EqualFold(d.Name, name) })
	if i < 0 {
		var names []string
		for _, d := range all {
			names = append(names, d.Name)
		}
		return 0, Device{}, fmt.Errorf("devices %q: unknown kind %q, want one of %s", s, name, strings.Join(names, ", "))
	}
	if !all[i].Fused && n > 1 {
		return 0, Device{}, fmt.Errorf("devices %q: the Go backend has one device", s)
	}
	return n, all[i], nil
}

// ram returns the memory of this machine, 0 if unknown.
func ram() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // read only
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
