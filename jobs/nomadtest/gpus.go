package nomadtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// GPUs are made MI300X of a node that has none: a tree of sysfs, and the configuration with
// which its agent loads the device plugin of this repository over that tree.
type GPUs struct {
	// Plugins is for Node.Plugins.
	Plugins string
	// IDs are those of the GPUs in the order of their PCI addresses.
	IDs []string
}

// GPUs makes n of them for the node of that name, whose topology is in another order than
// their buses.
func (c *Cluster) GPUs(node string, n int) GPUs {
	c.t.Helper()
	plugins := filepath.Join(c.dir, "plugins")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(plugins, "amdgpu"), ".")
	cmd.Dir = filepath.Join(c.root, "tools", "amdgpu")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	tree := filepath.Join(c.dir, "gpus-"+node)
	g := GPUs{Plugins: fmt.Sprintf(`
plugin_dir = %q
plugin "amdgpu" {
  config {
    sysfs = %q
    dev = %q
    fingerprint_period = "500ms"
  }
}
`, plugins, filepath.Join(tree, "sys"), filepath.Join(tree, "dev"))}
	c.write(filepath.Join(tree, "dev/kfd"), "")
	for i := range n {
		place := n - 1 - i // on the buses, from the last to the first
		c.write(filepath.Join(tree, fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/properties", place+1)), fmt.Sprintf(
			"simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\nlocation_id %d\ndomain 0\ndrm_render_minor %d\nunique_id %d\nnum_xcc 8\n",
			(16+i)<<8, 128+i, 4096+place))
		c.write(filepath.Join(tree, fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/mem_banks/0/properties", place+1)), fmt.Sprintf("size_in_bytes %d\n", int64(192)<<30))
		c.write(filepath.Join(tree, fmt.Sprintf("dev/dri/renderD%d", 128+i)), "")
		g.IDs = append(g.IDs, fmt.Sprintf("GPU-%016x", 4096+place))
	}
	return g
}

func (c *Cluster) write(path, content string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as sysfs has it
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // as sysfs has it
		c.t.Fatal(err)
	}
}
