//go:build integration

package backend_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/api"

	"temper/internal/nomad"
	"temper/internal/placement"
	"temper/internal/placement/placementtest"
	"temper/jobs"
	"temper/jobs/backend"
	"temper/jobs/nomadtest"
	"temper/jobs/spec"
)

// TestConformance: a real Nomad keeps the promises of the port. The members are programs
// that wait.
func TestConformance(t *testing.T) {
	c := nomadtest.Start(t, nomadtest.Options{Root: "../.."})
	const numNodes = 2
	for _, name := range []string{"gpu-1", "gpu-2"} {
		c.Node(nomadtest.Node{Name: name, Pool: "gpu"})
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "temper"), []byte("#!/bin/sh\nexec sleep 3600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cluster, err := spec.Parse("c.yaml", []byte("name: conf\nstore: file:///nowhere\ntemporal_address: 127.0.0.1:1\nroles:\n"+
		"  temporal: {count: 0}\n  trainer: {driver: raw_exec, cpu: 100}\n  sandbox: {driver: raw_exec, max: 3, cpu: 100, memory: 64MiB}\n"))
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
	if _, _, err := c.API.Variables().Create(&api.Variable{Path: build.Variable("trainer"), Items: map[string]string{jobs.ItemSandboxToken: "x"}}, nil); err != nil {
		t.Fatal(err)
	}
	sandbox := build.Sandbox()
	sandbox.TaskGroups[0].Tasks[0].Templates, sandbox.TaskGroups[0].Services, sandbox.NodePool = nil, nil, new("gpu")
	if _, _, err := c.API.Jobs().Register(sandbox, nil); err != nil {
		t.Fatal(err)
	}
	placementtest.Run(t, func(*testing.T) placementtest.Subject {
		return placementtest.Subject{
			Backend: b, Each: placement.Room{MemoryMiB: 10000}, Pool: "gpu", NumNodes: numNodes, Scaled: *sandbox.ID, Patience: 3 * 60e9,
		}
	})
}
