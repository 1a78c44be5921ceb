package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/device"
)

// tree is a made sysfs with device nodes.
type tree struct {
	testing.TB
	sysfs
}

func newTree(t testing.TB) *tree {
	dir := t.TempDir()
	tr := &tree{t, sysfs{sys: filepath.Join(dir, "sys"), dev: filepath.Join(dir, "dev")}}
	tr.write(tr.dev, "kfd", "")
	tr.write(tr.sys, "module/amdgpu/version", "6.12.12\n")
	// A processor is a node of the topology, too.
	tr.write(tr.sys, "class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n")
	return tr
}

func (t *tree) write(root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

const gib = 1 << 30

// add makes node n of the topology a GPU on a bus, in a partition mode; part counts the
// partitions of one GPU.
func (t *tree) add(n, bus, part int, mode string, cus, memoryGiB int) {
	t.Helper()
	node := fmt.Sprintf("class/kfd/kfd/topology/nodes/%d/", n)
	t.write(t.sys, node+"properties", fmt.Sprintf("simd_count %d\nsimd_per_cu 4\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\nlocation_id %d\ndomain 0\ndrm_render_minor %d\nunique_id %d\nnum_xcc %d\nlocal_mem_size 0\nname text\n",
		4*cus, bus<<8, 128+n, 1000+n, max(1, cus/38)))
	t.write(t.sys, node+"mem_banks/0/properties", fmt.Sprintf("heap_type 1\nsize_in_bytes %d\n", memoryGiB*gib))
	t.write(t.dev, fmt.Sprintf("dri/renderD%d", 128+n), "")
	if part > 0 {
		return
	}
	pci := fmt.Sprintf("bus/pci/devices/0000:%02x:00.0/", bus)
	for name, text := range map[string]string{
		"current_compute_partition": mode, "current_memory_partition": "NPS1", "numa_node": "1", "mem_info_vram_total": fmt.Sprint(192 * gib),
		"mem_info_vram_used": fmt.Sprint(24 * gib), "gpu_busy_percent": "87", "ras/umc_err_count": "ue: 0\nce: 4\n",
		"hwmon/hwmon3/power1_average": "612000000", "hwmon/hwmon3/temp1_input": "51000", "hwmon/hwmon3/temp2_input": "64000",
	} {
		t.write(t.sys, pci+name, text+"\n")
	}
}

// eight are 8 whole MI300X, whose topology nodes are not in the order of their buses.
func eight(t testing.TB) *tree {
	tr := newTree(t)
	for i, bus := range []int{0xb5, 0x05, 0x26, 0x46, 0xc6, 0x65, 0x85, 0xa6} {
		tr.add(i+2, bus, 0, "SPX", 304, 192)
	}
	return tr
}

func (t *tree) plugin() *plugin {
	p := newPlugin(hclog.NewNullLogger())
	p.gpus, p.period = t.sysfs, 5*time.Millisecond
	return p
}

func groupsOf(t *testing.T, tr *tree) []*device.DeviceGroup {
	t.Helper()
	p := tr.plugin()
	gpus, err := p.find()
	if err != nil {
		t.Fatal(err)
	}
	out := p.groups(gpus)
	for _, g := range out {
		if err := g.Validate(); err != nil {
			t.Error(err)
		}
	}
	return out
}

func TestEightWholeGPUs(t *testing.T) {
	groups := groupsOf(t, eight(t))
	if len(groups) != 1 || groups[0].Vendor != "amd" || groups[0].Type != "gpu" || groups[0].Name != "MI300X" || len(groups[0].Devices) != 8 {
		t.Fatalf("groups %+v", groups)
	}
	first := groups[0].Devices[0]
	if first.ID != "GPU-00000000000003eb" || first.HwLocality.PciBusID != "0000:05:00.0" || !first.Healthy {
		t.Errorf("first device %+v at %+v", first, first.HwLocality)
	}
	a := groups[0].Attributes
	if *a["memory"].Int != 192<<10 || a["memory"].Unit != "MiB" || *a["gfx"].String != "gfx942" || *a["compute_units"].Int != 304 || *a["xcc"].Int != 8 ||
		*a["compute_partition"].String != "SPX" || *a["memory_partition"].String != "NPS1" || *a["driver_version"].String != "6.12.12" {
		t.Errorf("attributes %v", a)
	}
}

// TestPartitions: eight parts of one socket are a group of their own, so that amd/gpu/MI300X
// means a whole one.
func TestPartitions(t *testing.T) {
	tr := newTree(t)
	tr.add(2, 0x05, 0, "SPX", 304, 192)
	for part := range 8 {
		tr.add(3+part, 0x26, part, "CPX", 38, 24)
	}
	groups := groupsOf(t, tr)
	if len(groups) != 2 || groups[0].Name != "MI300X" || len(groups[0].Devices) != 1 || groups[1].Name != "MI300X-cpx" || len(groups[1].Devices) != 8 {
		t.Fatalf("groups %+v", groups)
	}
	if a := groups[1].Attributes; *a["compute_units"].Int != 38 || *a["memory"].Int != 24<<10 {
		t.Errorf("attributes of a part %v", a)
	}
}

// TestReserve names the devices in the order of their PCI addresses, whatever order
// Nomad has.
func TestReserve(t *testing.T) {
	tr := eight(t)
	p := tr.plugin()
	got, err := p.Reserve([]string{"GPU-00000000000003ea", "GPU-00000000000003ec", "GPU-00000000000003eb"}) // b5, 26, 05
	if err != nil {
		t.Fatal(err)
	}
	const want = "GPU-00000000000003eb,GPU-00000000000003ec,GPU-00000000000003ea"
	if got.Envs["ROCR_VISIBLE_DEVICES"] != want || got.Envs["AMD_VISIBLE_DEVICES"] != want || got.Envs["HIP_VISIBLE_DEVICES"] != "" {
		t.Errorf("environment %v, want %s", got.Envs, want)
	}
	var tasks []string
	for _, d := range got.Devices {
		tasks = append(tasks, d.TaskPath)
		if !strings.HasPrefix(d.HostPath, tr.dev) || d.CgroupPerms != "rw" {
			t.Errorf("device %+v", d)
		}
	}
	if s := strings.Join(tasks, " "); s != "/dev/kfd /dev/dri/renderD131 /dev/dri/renderD132 /dev/dri/renderD130" {
		t.Errorf("devices %s", s)
	}
	for _, ids := range [][]string{nil, {"GPU-0000000000000001"}} {
		if _, err := p.Reserve(ids); err == nil {
			t.Errorf("%v was reserved", ids)
		}
	}
}

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		hurt func(*tree)
		want string
	}{
		"no render node": {func(tr *tree) { tr.remove(tr.dev, "dri/renderD131") }, "renderD131 is missing"},
		"uncorrectable":  {func(tr *tree) { tr.write(tr.sys, "bus/pci/devices/0000:05:00.0/ras/gfx_err_count", "ue: 2\nce: 0\n") }, "2 uncorrectable errors in its gfx"},
		"no id from the driver": {func(tr *tree) {
			file := filepath.Join(tr.sys, "class/kfd/kfd/topology/nodes/3/properties")
			tr.write(tr.sys, "class/kfd/kfd/topology/nodes/3/properties", strings.Replace(text(file), "unique_id 1003", "unique_id 0", 1))
		}, "no unique id"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := eight(t)
			c.hurt(tr)
			d := groupsOf(t, tr)[0].Devices[0]
			if d.Healthy || !strings.Contains(d.HealthDesc, c.want) {
				t.Errorf("device %+v, want unhealthy: %s", d, c.want)
			}
			if _, err := tr.plugin().Reserve([]string{d.ID}); err == nil {
				t.Error("it was reserved")
			}
		})
	}
}

// TestFingerprintTellsChanges: once at the start, and then what changes; a GPU that is
// gone is not offered any more.
func TestFingerprintTellsChanges(t *testing.T) {
	tr := eight(t)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := tr.plugin().Fingerprint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	unwell := func(r *device.FingerprintResponse) (devices, bad int) {
		for _, g := range r.Devices {
			for _, d := range g.Devices {
				devices++
				if !d.Healthy {
					bad++
				}
			}
		}
		return devices, bad
	}
	if all, bad := unwell(<-stream); all != 8 || bad != 0 {
		t.Errorf("at first %d devices, %d unhealthy", all, bad)
	}
	tr.remove(tr.dev, "dri/renderD133")
	if all, bad := unwell(<-stream); all != 8 || bad != 1 {
		t.Errorf("without a render node %d devices, %d unhealthy", all, bad)
	}
	tr.remove(tr.sys, "class/kfd/kfd/topology/nodes/5")
	if all, bad := unwell(<-stream); all != 7 || bad != 0 {
		t.Errorf("without the node %d devices, %d unhealthy", all, bad)
	}
	cancel()
	for range stream { // it ends
	}
}

func TestStats(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := eight(t).plugin().Stats(ctx, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := <-stream
	if len(got.Groups) != 1 || len(got.Groups[0].InstanceStats) != 8 {
		t.Fatalf("%+v", got.Groups)
	}
	s := got.Groups[0].InstanceStats["GPU-00000000000003eb"]
	a := s.Stats.Attributes
	if *s.Summary.IntNumeratorVal != 24<<10 || *s.Summary.IntDenominatorVal != 192<<10 || *a["busy"].IntNumeratorVal != 87 || *a["power"].FloatNumeratorVal != 612 || *a["temperature"].FloatNumeratorVal != 64 {
		t.Errorf("statistics %+v, %v", s.Summary, a)
	}
}

// TestNoGPUs: a machine without the driver offers nothing, and says so once.
func TestNoGPUs(t *testing.T) {
	tr := &tree{t, sysfs{sys: t.TempDir(), dev: t.TempDir()}}
	if groups := groupsOf(t, tr); len(groups) != 0 {
		t.Errorf("groups %v", groups)
	}
	p := tr.plugin()
	p.enabled = false
	if _, err := p.Fingerprint(t.Context()); err == nil {
		t.Error("a disabled plugin fingerprints")
	}
}

func TestNames(t *testing.T) {
	for version, want := range map[uint64]string{90402: "gfx942", 90010: "gfx90a", 110001: "gfx1101", 90500: "gfx950"} {
		if got := gfxName(version); got != want {
			t.Errorf("%d is %s, want %s", version, got, want)
		}
	}
	if got := address(1, 0x26<<8|3<<3|1); got != "0001:26:03.1" {
		t.Errorf("address %s", got)
	}
}

// remove takes a file or a folder out of the tree.
func (t *tree) remove(base, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(base, name)); err != nil {
		t.Fatal(err)
	}
}
