//go:build integration

package backend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/nomad"
	"temper/internal/placement"
	"temper/jobs"
	"temper/jobs/backend"
	"temper/jobs/nomadtest"
	"temper/jobs/spec"
)

// pair is a gang of two members, each with all 8 GPUs of a node.
func pair(run string) placement.Job {
	s := placement.Spec{Trainer: &placement.Group{Count: 1}, Rollout: &placement.Group{Count: 2, Devices: map[string]int{"amd/gpu": 8}, Pool: "gpu"}}
	for _, j := range s.Jobs(run, 1, 3) {
		if j.Role == placement.RoleRollout {
			return j
		}
	}
	panic("no job")
}

// TestGangOfGPUs: a real agent loads the device plugin of tools/amdgpu over two made machines of 8
// GPUs. Gangs take turns on them, members get the GPUs in the order of their buses, and one
// that breaks is seen.
func TestGangOfGPUs(t *testing.T) {
	c := nomadtest.Start(t, nomadtest.Options{Root: "../.."})
	plugin := nomadtest.PluginFolder(t, "../..")
	machines := []*nomadtest.GPUs{nomadtest.NewGPUs(t, 8), nomadtest.NewGPUs(t, 8)}
	for i, m := range machines {
		c.Node(nomadtest.Node{Name: fmt.Sprintf("gpu-%d", i+1), Pool: "gpu", Plugins: m.Config(plugin)})
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "temper"), []byte("#!/bin/sh\nexec sleep 3600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cluster, err := spec.Parse("c.yaml", []byte("name: conf\nstore: file:///nowhere\ntemporal_address: 127.0.0.1:1\nroles:\n"+
		"  temporal: {count: 0}\n  trainer: {driver: raw_exec, cpu: 100}\n  rollout: {driver: raw_exec, cpu: 100, memory: 64MiB}\n"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Programs.Folder = folder
	client, err := nomad.Connect(nomad.Config{Address: c.Address})
	if err != nil {
		t.Fatal(err)
	}
	build := jobs.Build{Cluster: cluster, Version: "test"}
	b := backend.New(client, build)
	items := map[string]string{jobs.ItemSandboxToken: "x"}
	if _, _, err := c.API.Variables().Create(&api.Variable{Path: build.RunsVariable(), Items: items}, nil); err != nil {
		t.Fatal(err)
	}
	free := func(want int) func() error {
		return func() error {
			nodes, err := b.Nodes(t.Context())
			if err != nil {
				return err
			}
			for _, n := range nodes {
				if n.Free.Devices["amd/gpu"] != want {
					return fmt.Errorf("node %s has %v free", n.Name, n.Free.Devices)
				}
			}
			return nil
		}
	}
	c.Await("the plugin to show 8 GPUs on each node", free(8))

	first, second := pair("a"), pair("b")
	startGang(t, c, b, first)
	if err := free(0)(); err != nil {
		t.Error(err)
	}
	for _, a := range c.Running(first.ID) {
		if got, want := visible(t, a.ID), "GPU-0000000000000010,GPU-0000000000000020,GPU-0000000000000030,GPU-0000000000000040,"+
			"GPU-0000000000000050,GPU-0000000000000060,GPU-0000000000000070,GPU-0000000000000080"; got != want {
			t.Errorf("%s sees %q, want %q", a.Name, got, want)
		}
	}
	var full *placement.NoRoomError
	if _, err := b.Start(t.Context(), second, 0); !errors.As(err, &full) || !strings.Contains(full.Error(), "amd/gpu") {
		t.Errorf("a second gang: %v", err)
	}
	if err := b.Stop(t.Context(), first.ID, 1); err != nil {
		t.Fatal(err)
	}
	c.Await("the GPUs to be free", free(8))
	took := startGang(t, c, b, second)
	t.Logf("a gang of 2 x 8 GPUs runs %.2f s after there is room", took.Seconds())
	if took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := b.Stop(t.Context(), second.ID, 1); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		m.Break(5)
	}
	c.Await("the GPUs that broke to be seen", free(7))
	if _, err := b.Start(t.Context(), pair("c"), 0); !errors.As(err, &full) {
		t.Errorf("a gang on 7 of 8 GPUs: %v", err)
	}
}

// startGang starts a job and returns how long it took until all members run.
func startGang(t *testing.T, c *nomadtest.Cluster, b *backend.Backend, j placement.Job) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := b.Start(t.Context(), j, 0); err != nil {
		t.Fatal(err)
	}
	c.Await("the gang to run", func() error {
		if n := len(c.Running(j.ID)); n != j.Members {
			return fmt.Errorf("%d of %d members run", n, j.Members)
		}
		return nil
	})
	return time.Since(began)
}

// rocr is the variable by which ROCm finds its GPUs.
var rocr = regexp.MustCompile(`(?:^|\x00)ROCR_VISIBLE_DEVICES=([^\x00]*)`)

// visible are the GPUs that the processes of an allocation see.
func visible(t *testing.T, alloc string) string {
	t.Helper()
	for _, pid := range nomadtest.Pids(alloc) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // it has ended
		}
		if m := rocr.FindSubmatch(env); m != nil {
			return string(m[1])
		}
	}
	return ""
}
