package nomadtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// GPUs are simulated MI300X on a node without GPUs: a tree of sysfs, and the configuration
// with which the agent of the node loads the device plugin of this repository over that
// tree.
type GPUs struct {
	// Plugins is for Node.Plugins.
	Plugins string
	// IDs holds the ids of the GPUs in the order of their PCI addresses.
	IDs []string
}

// GPUs makes n of them for the node of that name; their order in the topology differs from
// the order of their buses.
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

// childrenOf returns the child processes of an agent: its device plugins, which end with
// it, and the holders of its tasks, which keep running.
func (c *Cluster) childrenOf(agent int) (plugins, holders []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is valid
	for _, entry := range entries {
		program, err := os.Readlink(entry)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		stat, failed := os.ReadFile(filepath.Join(filepath.Dir(entry), "stat"))
		if err != nil || failed != nil || parentOf(stat) != agent {
			continue
		}
		if filepath.Dir(program) == filepath.Join(c.dir, "plugins") {
			plugins = append(plugins, pid)
		} else {
			holders = append(holders, pid)
		}
	}
	return plugins, holders
}

// parentOf returns the parent in a process's stat, from the fields after the name in
// parentheses.
func parentOf(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return n
}

// reap ends a plugin whose agent is gone. If this process adopts orphans, it also collects
// the plugin: a restarted agent asks the old process for an answer while its process id
// exists.
func reap(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL) // it also ends by itself
	for range 100 {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if got == pid || err != nil && !errors.Is(err, syscall.EINTR) {
			return // collected, or another process's child
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// collect waits for a process that this one has adopted, as init does. Without it a
// restarted agent takes a zombie for a running process and never finishes its task, and a
// drain of the node waits for both.
func collect(pid int) {
	for {
		_, err := syscall.Wait4(pid, nil, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return // collected, or another process's child
		}
	}
}
