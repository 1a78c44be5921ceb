//go:build integration

package backend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/internal/placement/placementtest"
	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/backend"
	"temper/jobs/nomad"
	"temper/jobs/nomadtest"
	"temper/jobs/spec"
)

// controlToken has the rights that control workers are given.
func controlToken(t *testing.T, c *nomadtest.Cluster) string {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/nomad/acl/control.hcl")
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.ReplaceAll(string(rules), "nomad/jobs/temper-run", "nomad/jobs/conf-run")
	if _, err := c.API.ACLPolicies().Upsert(&api.ACLPolicy{Name: "control", Rules: policy}, nil); err != nil {
		t.Fatal(err)
	}
	token, _, err := c.API.ACLTokens().Create(&api.ACLToken{Name: "control", Type: "client", Policies: []string{"control"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return token.SecretID
}

// TestConformance: a real Nomad keeps the promises of the port. The instances are programs
// that wait.
func TestConformance(t *testing.T) {
	c := nomadtest.Start(t, nomadtest.Options{Root: "../..", ACL: true})
	c.Bootstrap()
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
	client, err := nomad.Connect(nomad.Config{Address: c.Address, Token: controlToken(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	build := jobs.Build{Cluster: cluster, Version: "test"}
	b := backend.New(client, build)
	if _, _, err := c.API.Variables().Create(&api.Variable{Path: build.RunsVariable(), Items: map[string]string{jobs.ItemSandboxToken: "x"}}, nil); err != nil {
		t.Fatal(err)
	}
	sandbox := build.Job(role.Sandbox)
	group := sandbox.TaskGroups[0]
	group.Tasks[0].Templates, group.Tasks[0].Config["args"] = nil, []string{}
	group.Services, group.Update.HealthCheck, sandbox.NodePool = nil, new("task_states"), new("gpu")
	if _, _, err := c.API.Jobs().Register(sandbox, nil); err != nil {
		t.Fatal(err)
	}
	c.Await("the service to scale", func() error { // no count changes while a deployment is under way
		d, _, err := c.API.Jobs().LatestDeployment(*sandbox.ID, nil)
		if err == nil && (d == nil || d.Status != "successful") {
			err = fmt.Errorf("deployment %+v", d)
		}
		return err
	})
	each := placement.Resources{MemoryMiB: 10000}
	placementtest.Run(t, func(*testing.T) placementtest.Subject {
		c.Await("the instances of the last test to end", func() error {
			nodes, err := b.Nodes(t.Context())
			for _, n := range nodes {
				if n.State != placement.NodeReady || !n.Free.Holds(each) {
					return fmt.Errorf("node %+v", n)
				}
			}
			return err
		})
		return placementtest.Subject{
			Backend: b, Each: each, Pool: "gpu", NumNodes: numNodes, Scaled: *sandbox.ID, Patience: 3 * 60e9,
		}
	})
}
