package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// gpu is one GPU, or one partition of one, as the driver's sysfs shows it. What a kernel
// does not show is zero.
type gpu struct {
	// id is the UUID by which ROCR_VISIBLE_DEVICES knows it.
	id    string
	model string
	// pci is the address domain:bus:device.function, index the place of a partition on it.
	pci   string
	index int
	// render is the number of the render node.
	render int
	// node is the number of the topology node.
	node int

	gfx          string
	computeUnits int64
	xcc          int64
	vramBytes    int64
	partition    string // SPX, DPX, QPX, CPX
	memory       string // NPS1, NPS2, NPS4
	numa         int64  // -1 where there is none

	// unwell is why it must not be used; "" when it is fine.
	unwell string
}

// sysfs finds GPUs below the folders of sysfs and of device nodes.
type sysfs struct {
	sys, dev string
}

// Device ids of AMD's data centre GPUs. Others are named by gfx version and id.
var models = map[int64]string{
	0x74a0: "MI300A", 0x74a1: "MI300X", 0x74a2: "MI308X", 0x74a5: "MI325X", 0x74a9: "MI300X-HF", 0x74b5: "MI300X-VF",
	0x75a0: "MI350X", 0x75a3: "MI355X",
	0x7408: "MI250X", 0x740c: "MI250X", 0x740f: "MI210", 0x7410: "MI210", 0x738c: "MI100", 0x738e: "MI100", 0x66a1: "MI60", 0x66a0: "MI60",
}

// vendorAMD is the PCI vendor.
const vendorAMD = 0x1002

// find lists all GPUs, by PCI address and then by partition. A machine without the
// driver has none.
func (s sysfs) find() ([]gpu, error) {
	dirs, err := filepath.Glob(filepath.Join(s.sys, "class/kfd/kfd/topology/nodes/*"))
	if err != nil {
		return nil, fmt.Errorf("topology of KFD: %w", err)
	}
	var out []gpu
	for _, dir := range dirs {
		g, ok, err := s.read(dir)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b gpu) int { return cmp.Or(strings.Compare(a.pci, b.pci), cmp.Compare(a.node, b.node)) })
	for i := range out {
		if i > 0 && out[i].pci == out[i-1].pci {
			out[i].index = out[i-1].index + 1
		}
	}
	return out, nil
}

// read reads one node of the topology; ok is false for a processor.
func (s sysfs) read(dir string) (g gpu, ok bool, err error) {
	p, err := properties(filepath.Join(dir, "properties"))
	if os.IsNotExist(err) || os.IsPermission(err) { // gone since, or another cgroup's
		return g, false, nil
	}
	if err != nil {
		return g, false, err
	}
	if p["simd_count"] == 0 || p["gfx_target_version"] == 0 || p["vendor_id"] != vendorAMD && p["vendor_id"] != 0 {
		return g, false, nil
	}
	g.node, err = strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return g, false, fmt.Errorf("topology node %s: its name is no number", dir)
	}
	g.gfx = gfxName(p["gfx_target_version"])
	g.model = cmp.Or(models[int64(p["device_id"])], fmt.Sprintf("%s-%04x", g.gfx, p["device_id"]))
	g.render = int(p["drm_render_minor"])
	g.pci = address(p["domain"], p["location_id"])
	g.xcc = max(1, int64(p["num_xcc"]))
	g.computeUnits = int64(p["simd_count"] / max(1, p["simd_per_cu"]))
	g.id = fmt.Sprintf("GPU-%016x", p["unique_id"])
	if p["unique_id"] == 0 { // older than the key: by place, which ROCR takes, too
		g.id = fmt.Sprintf("GPU-pci-%s-%d", g.pci, g.node)
		g.unwell = "the driver gives it no unique id, by which a task could be bound to it"
	}
	pci := s.pci(g.pci)
	g.partition = text(filepath.Join(pci, "current_compute_partition"))
	g.memory = text(filepath.Join(pci, "current_memory_partition"))
	g.numa = number(filepath.Join(pci, "numa_node"), -1)
	g.vramBytes = memoryOf(dir)
	if g.vramBytes == 0 && !g.partitioned() {
		g.vramBytes = number(filepath.Join(pci, "mem_info_vram_total"), 0)
	}
	g.unwell = cmp.Or(g.unwell, s.trouble(g))
	return g, true, nil
}

func (s sysfs) pci(address string) string { return filepath.Join(s.sys, "bus/pci/devices", address) }

// partitioned reports whether it is a part of a GPU.
func (g gpu) partitioned() bool { return g.partition != "" && g.partition != "SPX" }

// group is the name under which it is offered: a job that asks for amd/gpu/MI300X gets
// whole ones.
func (g gpu) group() string {
	if g.partitioned() {
		return g.model + "-" + strings.ToLower(g.partition)
	}
	return g.model
}

// trouble says why a GPU must not be used; "" when it is fine.
func (s sysfs) trouble(g gpu) string {
	node := s.renderNode(g)
	if _, err := os.Stat(node); err != nil {
		return fmt.Sprintf("%s is missing", node)
	}
	if _, err := os.Stat(filepath.Join(s.dev, "kfd")); err != nil {
		return filepath.Join(s.dev, "kfd") + " is missing"
	}
	files, _ := filepath.Glob(filepath.Join(s.pci(g.pci), "ras", "*_err_count")) // the pattern is right
	for _, file := range files {
		if n := uncorrectable(text(file)); n > 0 {
			return fmt.Sprintf("%d uncorrectable errors in its %s", n, strings.TrimSuffix(filepath.Base(file), "_err_count"))
		}
	}
	return ""
}

func (s sysfs) renderNode(g gpu) string {
	return filepath.Join(s.dev, "dri", fmt.Sprintf("renderD%d", g.render))
}

// uncorrectable reads "ue: n" of an error count.
func uncorrectable(count string) int64 {
	for _, line := range strings.Split(count, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ue:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// gfxName writes major*10000 + minor*100 + step as gfx, decimal, hex, hex.
func gfxName(version uint64) string {
	return fmt.Sprintf("gfx%d%x%x", version/10000, version/100%100, version%100)
}

// address writes KFD's location, bus<<8 | device<<3 | function, as a PCI address.
func address(domain, location uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, location>>8&0xff, location>>3&0x1f, location&7)
}

// memoryOf adds up the memory banks of a topology node: its own size is 0 on some GPUs.
func memoryOf(dir string) (bytes int64) {
	banks, _ := filepath.Glob(filepath.Join(dir, "mem_banks/*/properties")) // the pattern is right
	for _, bank := range banks {
		p, err := properties(bank)
		if err == nil { // else gone since
			bytes += int64(p["size_in_bytes"])
		}
	}
	return bytes
}

// properties reads lines "key value"; values that are no numbers are left out.
func properties(file string) (map[string]uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for _, line := range strings.Split(string(data), "\n") {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			out[key] = n
		}
	}
	return out, nil
}

// text reads a small file; "" where there is none.
func text(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// number reads a file with a number.
func number(file string, or int64) int64 {
	n, err := strconv.ParseInt(text(file), 10, 64)
	if err != nil {
		return or
	}
	return n
}
