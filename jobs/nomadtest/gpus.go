package nomadtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// GPUs is a made tree of sysfs with device nodes: whole MI300X of one machine.
type GPUs struct {
	t testing.TB
	// Sysfs and Dev stand for /sys and /dev.
	Sysfs, Dev string
}

// NewGPUs makes n of them, whose nodes of the topology are not in the order of their buses.
func NewGPUs(t testing.TB, n int) *GPUs {
	t.Helper()
	dir := t.TempDir()
	g := &GPUs{t: t, Sysfs: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}
	g.write(g.Dev, "kfd", "")
	g.write(g.Sysfs, "module/amdgpu/version", "6.12.12\n")
	for i := range n {
		bus := 0x10 + 0x10*((i*3)%n)
		node := fmt.Sprintf("class/kfd/kfd/topology/nodes/%d/", i+2)
		g.write(g.Sysfs, node+"properties", fmt.Sprintf("simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\n"+
			"location_id %d\ndomain 0\ndrm_render_minor %d\nunique_id %d\nnum_xcc 8\nlocal_mem_size 0\n", bus<<8, 128+i, bus))
		g.write(g.Sysfs, node+"mem_banks/0/properties", "heap_type 1\nsize_in_bytes 206158430208\n")
		g.write(g.Sysfs, fmt.Sprintf("bus/pci/devices/0000:%02x:00.0/current_compute_partition", bus), "SPX\n")
		g.write(g.Sysfs, fmt.Sprintf("bus/pci/devices/0000:%02x:00.0/mem_info_vram_total", bus), "206158430208\n")
		g.write(g.Dev, fmt.Sprintf("dri/renderD%d", 128+i), "")
	}
	return g
}

func (g *GPUs) write(root, name, content string) {
	g.t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// Break removes the render node of a GPU, as a driver does that gives one up, and Mend brings it back.
func (g *GPUs) Break(i int) {
	g.t.Helper()
	if err := os.Remove(filepath.Join(g.Dev, fmt.Sprintf("dri/renderD%d", 128+i))); err != nil {
		g.t.Fatal(err)
	}
}

// Mend undoes Break.
func (g *GPUs) Mend(i int) { g.write(g.Dev, fmt.Sprintf("dri/renderD%d", 128+i), "") }

// PluginFolder has the device plugin of tools/amdgpu, built from the repository at root.
func PluginFolder(t testing.TB, root string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "temper-amdgpu"), ".") //nolint:gosec // a folder of this repository
	build.Dir = filepath.Join(root, "tools", "amdgpu")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	return dir
}

// Config is the part of an agent's configuration that loads the plugin from a folder.
func (g *GPUs) Config(folder string) string {
	return fmt.Sprintf(`
plugin_dir = %q
plugin "temper-amdgpu" {
  config {
    sysfs = %q
    dev = %q
    fingerprint_period = "200ms"
  }
}
`, folder, g.Sysfs, g.Dev)
}
