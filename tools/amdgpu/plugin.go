package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

const (
	pluginName    = "amd-gpu"
	pluginVersion = "v0.1.0"
	vendor        = "amd"
)

// config is the plugin's block in the agent's configuration.
type config struct {
	Enabled bool     `codec:"enabled"`
	Ignored []string `codec:"ignored_gpu_ids"`
	Period  string   `codec:"fingerprint_period"`
	Sysfs   string   `codec:"sysfs"`
	Dev     string   `codec:"dev"`
}

func attr(name, kind, otherwise string) *hclspec.Spec {
	return hclspec.NewDefault(hclspec.NewAttr(name, kind, false), hclspec.NewLiteral(otherwise))
}

func schema() *hclspec.Spec {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"enabled": attr("enabled", "bool", "true"), "ignored_gpu_ids": attr("ignored_gpu_ids", "list(string)", "[]"),
		"fingerprint_period": attr("fingerprint_period", "string", `"10s"`), "sysfs": attr("sysfs", "string", `"/sys"`), "dev": attr("dev", "string", `"/dev"`),
	})
}

// plugin offers the GPUs of one machine.
type plugin struct {
	log     hclog.Logger
	gpus    sysfs
	period  time.Duration
	ignored []string
	enabled bool
}

var _ device.DevicePlugin = (*plugin)(nil)

func newPlugin(log hclog.Logger) *plugin {
	return &plugin{log: log.Named(pluginName), gpus: sysfs{sys: "/sys", dev: "/dev"}, period: 10 * time.Second, enabled: true}
}

// PluginInfo implements base.BasePlugin.
func (p *plugin) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type: base.PluginTypeDevice, PluginApiVersions: []string{device.ApiVersion010}, PluginVersion: pluginVersion, Name: pluginName,
	}, nil
}

// ConfigSchema implements base.BasePlugin.
func (p *plugin) ConfigSchema() (*hclspec.Spec, error) { return schema(), nil }

// SetConfig implements base.BasePlugin.
func (p *plugin) SetConfig(c *base.Config) error {
	var cfg config
	if len(c.PluginConfig) > 0 {
		if err := base.MsgPackDecode(c.PluginConfig, &cfg); err != nil {
			return fmt.Errorf("plugin %q: %w", pluginName, err)
		}
	}
	period, err := time.ParseDuration(cfg.Period)
	if err != nil || period < 10*time.Millisecond {
		return fmt.Errorf("plugin %q: fingerprint_period is %q, want a duration such as 10s", pluginName, cfg.Period)
	}
	for key, path := range map[string]string{"sysfs": cfg.Sysfs, "dev": cfg.Dev} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("plugin %q: %s is %q, want an absolute path", pluginName, key, path)
		}
	}
	p.period, p.ignored, p.enabled = period, cfg.Ignored, cfg.Enabled
	p.gpus = sysfs{sys: cfg.Sysfs, dev: cfg.Dev}
	return nil
}

// Fingerprint implements device.DevicePlugin. It sends the GPUs at once and whenever
// something has changed.
func (p *plugin) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	if !p.enabled {
		return nil, device.ErrPluginDisabled
	}
	out := make(chan *device.FingerprintResponse)
	go func() {
		defer close(out)
		var last []*device.DeviceGroup
		first := true
		for {
			gpus, err := p.find()
			groups := p.groups(gpus)
			switch {
			case err != nil: // it may pass, and an error would end the plugin's stream for good
				p.log.Error("GPUs are not found", "error", err)
			case first || !reflect.DeepEqual(groups, last):
				select {
				case out <- device.NewFingerprint(groups...):
					first, last = false, groups
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.period):
			}
		}
	}()
	return out, nil
}

// find lists the GPUs that are not ignored.
func (p *plugin) find() ([]gpu, error) {
	all, err := p.gpus.find()
	return slices.DeleteFunc(all, func(g gpu) bool { return slices.Contains(p.ignored, g.id) }), err
}

// groups sorts GPUs into groups of one model and partition.
func (p *plugin) groups(gpus []gpu) []*device.DeviceGroup {
	byName := map[string]*device.DeviceGroup{}
	for _, g := range gpus {
		group := byName[g.group()]
		if group == nil {
			group = &device.DeviceGroup{Vendor: vendor, Type: device.DeviceTypeGPU, Name: g.group(), Attributes: p.attributes(g)}
			byName[g.group()] = group
		}
		group.Devices = append(group.Devices, &device.Device{
			ID: g.id, Healthy: g.unwell == "", HealthDesc: g.unwell, HwLocality: &device.DeviceLocality{PciBusID: g.pci},
		})
	}
	out := []*device.DeviceGroup{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// attributes are what jobs may set constraints on.
func (p *plugin) attributes(g gpu) map[string]*structs.Attribute {
	out := map[string]*structs.Attribute{
		"memory":            structs.NewIntAttribute(g.vramBytes>>20, structs.UnitMiB),
		"gfx":               structs.NewStringAttribute(g.gfx),
		"compute_units":     structs.NewIntAttribute(g.computeUnits, ""),
		"xcc":               structs.NewIntAttribute(g.xcc, ""),
		"model":             structs.NewStringAttribute(g.model),
		"compute_partition": structs.NewStringAttribute(g.partition),
		"memory_partition":  structs.NewStringAttribute(g.memory),
		"driver_version":    structs.NewStringAttribute(text(filepath.Join(p.gpus.sys, "module/amdgpu/version"))),
	}
	maps.DeleteFunc(out, func(_ string, a *structs.Attribute) bool { return a.String != nil && *a.String == "" })
	return out
}

// Reserve implements device.DevicePlugin. The devices are in the order of their PCI
// addresses, however Nomad names them, so that rank n of a gang has the same place on
// every machine.
func (p *plugin) Reserve(ids []string) (*device.ContainerReservation, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("no device is named")
	}
	gpus, err := p.find()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	var chosen []string
	out := &device.ContainerReservation{Devices: []*device.DeviceSpec{mount(filepath.Join(p.gpus.dev, "kfd"), "/dev/kfd")}}
	for _, g := range gpus {
		known[g.id] = true
		if slices.Contains(ids, g.id) {
			if g.unwell != "" {
				return nil, fmt.Errorf("GPU %s at %s: %s", g.id, g.pci, g.unwell)
			}
			chosen = append(chosen, g.id)
			out.Devices = append(out.Devices, mount(p.gpus.renderNode(g), fmt.Sprintf("/dev/dri/renderD%d", g.render)))
		}
	}
	for _, id := range ids {
		if !known[id] {
			return nil, fmt.Errorf("GPU %s is not on this machine", id)
		}
	}
	// HIP_VISIBLE_DEVICES counts within what ROCR shows: both together would hide devices.
	list := strings.Join(chosen, ",")
	out.Envs = map[string]string{"ROCR_VISIBLE_DEVICES": list, "AMD_VISIBLE_DEVICES": list}
	return out, nil
}

func mount(host, task string) *device.DeviceSpec {
	return &device.DeviceSpec{HostPath: host, TaskPath: task, CgroupPerms: "rw"}
}
