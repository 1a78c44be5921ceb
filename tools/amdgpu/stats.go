package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

// Stats implements device.DevicePlugin.
func (p *plugin) Stats(ctx context.Context, interval time.Duration) (<-chan *device.StatsResponse, error) {
	if !p.enabled {
		return nil, device.ErrPluginDisabled
	}
	out := make(chan *device.StatsResponse)
	go func() {
		defer close(out)
		for {
			gpus, err := p.find()
			answer := &device.StatsResponse{Groups: p.groupStats(gpus, time.Now())}
			if err != nil {
				p.log.Error("GPUs are not found", "error", err)
				answer = nil
			}
			if answer != nil {
				select {
				case out <- answer:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(interval, time.Millisecond)):
			}
		}
	}()
	return out, nil
}

func (p *plugin) groupStats(gpus []gpu, now time.Time) (out []*device.DeviceGroupStats) {
	byName := map[string]*device.DeviceGroupStats{}
	for _, g := range gpus {
		group := byName[g.group()]
		if group == nil {
			group = &device.DeviceGroupStats{Vendor: vendor, Type: device.DeviceTypeGPU, Name: g.group(), InstanceStats: map[string]*device.DeviceStats{}}
			byName[g.group()] = group
			out = append(out, group)
		}
		group.InstanceStats[g.id] = p.stats(g, now)
	}
	return out
}

const microwatts, millidegrees = 1e6, 1e3

// stats reads what the driver measures. Partitions share the sensors of their GPU.
func (p *plugin) stats(g gpu, now time.Time) *device.DeviceStats {
	pci := p.gpus.pci(g.pci)
	used, total := number(filepath.Join(pci, "mem_info_vram_used"), -1), number(filepath.Join(pci, "mem_info_vram_total"), 0)
	out := &device.DeviceStats{Summary: &structs.StatValue{Unit: structs.UnitMiB, Desc: "memory in use"}, Stats: &structs.StatObject{Attributes: map[string]*structs.StatValue{}}, Timestamp: now}
	set := out.Stats.Attributes
	if used >= 0 {
		out.Summary.IntNumeratorVal, out.Summary.IntDenominatorVal = new(used>>20), new(total>>20)
		set["memory"] = out.Summary
	}
	if busy := number(filepath.Join(pci, "gpu_busy_percent"), -1); busy >= 0 {
		set["busy"] = &structs.StatValue{IntNumeratorVal: new(busy), IntDenominatorVal: new(int64(100)), Unit: "%", Desc: "share of time in which the GPU computed"}
	}
	if watt, ok := sensor(pci, "power1_average", "power1_input"); ok {
		set["power"] = &structs.StatValue{FloatNumeratorVal: new(watt / microwatts), Unit: "W", Desc: "power"}
	}
	if hot, ok := sensor(pci, "temp2_input", "temp1_input"); ok {
		set["temperature"] = &structs.StatValue{FloatNumeratorVal: new(hot / millidegrees), Unit: "C", Desc: "temperature, of the hottest spot where it is measured"}
	}
	return out
}

// sensor reads the first of these files that there is.
func sensor(pci string, names ...string) (float64, bool) {
	for _, name := range names {
		files, _ := filepath.Glob(filepath.Join(pci, "hwmon", "hwmon*", name)) // the pattern is right
		for _, file := range files {
			if n := number(file, -1); n >= 0 {
				return float64(n), true
			}
		}
	}
	return 0, false
}
