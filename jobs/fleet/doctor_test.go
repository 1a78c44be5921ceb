package fleet_test

import (
	"strings"
	"testing"

	"temper/jobs/fleet"
)

// TestFoldersHaveOneNode: doctor names roles that would begin with nothing on another node.
func TestFoldersHaveOneNode(t *testing.T) {
	w := newLone(t, "name: shop\nroles:\n  temporal: {driver: raw_exec}\n  objectstore: {count: 1}\n  sandbox: {driver: raw_exec}\n  metrics: {count: 1, pool: watch, driver: raw_exec}\n")
	folders := func() fleet.Finding {
		t.Helper()
		for _, found := range w.fleet("v1").Doctor(t.Context()) {
			if found.Name == "folders" {
				return found
			}
		}
		t.Fatal("doctor says nothing of folders")
		return fleet.Finding{}
	}
	w.nodes[0]["HostVolumes"] = map[string]any{"shop": nil}
	w.node("gone")["Status"] = "down"
	w.node("watcher")["NodePool"] = "watch"
	if found := folders(); !found.OK || found.Detail != "what roles keep on a node has one node each" {
		t.Errorf("one machine for each: %s", found)
	}
	w.node("two") // without the volume, so that the object store cannot go there
	found := folders()
	const want = "temporal keeps /var/lib/temper/temporal.db on one node, and 2 may take it (one, two): on another node it would begin with nothing: give it a pool of one machine"
	if found.OK || found.Detail != want {
		t.Errorf("two machines: %s, want %s", found, want)
	}
	w.nodes[3]["HostVolumes"] = map[string]any{"shop": nil}
	w.node("watcher-2")["NodePool"] = "watch"
	for _, part := range []string{"objectstore keeps /var/lib/temper/objects on one node, and 2 may take it (one, two)", "metrics keeps /var/lib/temper/prometheus on one node, and 2 may take it (watcher, watcher-2)"} {
		if found := folders(); !strings.Contains(found.Detail, part) {
			t.Errorf("doctor: %s, want %q in it", found, part)
		}
	}
	w.build.Postgres, w.build.Roles.ObjectStore.Count, w.build.Roles.Metrics.Count, w.build.Store = "postgres://temper@db/temporal", 0, 0, "s3://runs/a"
	if found := folders(); !found.OK || found.Detail != "no role keeps anything on its node" {
		t.Errorf("Temporal on a database elsewhere: %s", found)
	}
}
