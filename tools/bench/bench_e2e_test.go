//go:build integration

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/tools/bench/board"
	"temper/tools/bench/sandboxbench"
)

// benchJSON runs a bench of the real binary and decodes what it prints.
func benchJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "temper-bench"), args...).Output()
	if len(out) == 0 && err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
}

// A step's calls, scaled down, through a gateway and nodes that come and go.
func TestBenchScale(t *testing.T) {
	var r sandboxbench.ScaleReport
	benchJSON(t, &r, "scale", "--calls", "2000", "--nodes", "2", "--slots", "16", "--json")
	if !r.Exact() || r.Calls != 2000 {
		t.Errorf("lost %d, duplicated %d, unasked %d, wrong %d of %d calls: %s", r.Lost, r.Duplicated, r.Unasked, r.Wrong, r.Calls, r.Failure)
	}
	killed, added := 0, 0
	for _, m := range r.Members {
		if m.Killed {
			killed++
		}
		if m.Added {
			added++
		}
		if m.PeakRSS < 1<<20 {
			t.Errorf("%s: peak RSS of %d bytes", m.Name, m.PeakRSS)
		}
	}
	if len(r.Members) != 4 || killed != 1 || added != 1 {
		t.Errorf("members %+v, want a gateway and three nodes, one killed, one added", r.Members)
	}
}

// Sessions that two nodes share all live while their cells are measured.
func TestBenchDensityOfNodes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "temper-bench"), "density", "--nodes", "2", "--kernels", "5", "--branches", "2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "7 sessions live in 2 nodes") || !strings.Contains(string(out), "7 sessions live after the cells") {
		t.Errorf("%v: %s", err, out)
	}
	if n := strings.Count(string(out), "first cell"); n != 2 {
		t.Errorf("%d nodes with figures, want 2: %s", n, out)
	}
}

// What a soak looks for, scaled down. The pace of so few calls says nothing, and
// what else is on the machine belongs to other tests.
func TestBenchSoak(t *testing.T) {
	var r sandboxbench.SoakReport
	benchJSON(t, &r, "soak", "--calls", "2000", "--mix", "soak-stdlib", "--json")
	if r.Failed > 0 || len(r.Tenths) != 10 {
		t.Fatalf("%d failed, %d tenths", r.Failed, len(r.Tenths))
	}
	before, after := r.Before, r.Tenths[9].Inventory
	if after.Processes > before.Processes+4 || after.Descriptors > before.Descriptors+16 {
		t.Errorf("processes %d to %d, descriptors %d to %d", before.Processes, after.Processes, before.Descriptors, after.Descriptors)
	}
}

// The board of two ways, scaled down: the ratio is left to people.
func TestBenchBoard(t *testing.T) {
	var r board.Report
	benchJSON(t, &r, "board", "--ways", "temper,plain python", "--programs", "print", "--rounds", "1", "--slice", "200ms", "--idle", "4", "--json")
	if len(r.Rows) != 2 || len(r.Ways) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, row := range r.Rows {
		if row.Failed > 0 || row.Calls == 0 || row.CPU <= 0 || row.P50 <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if ours, plain := r.Ways[0], r.Ways[1]; len(ours.Held) != len(r.Probes) || len(plain.Held) == len(r.Probes) {
		t.Errorf("of %v the sandbox held %v, a plain interpreter %v", r.Probes, ours.Held, plain.Held)
	}
}

// What overload measures, scaled down: the pace of so few calls says nothing.
func TestBenchOverload(t *testing.T) {
	var levels []sandboxbench.OverloadLevel
	benchJSON(t, &levels, "overload", "--levels", "1,8", "--work", "30ms", "--calls", "24", "--rounds", "1", "--hostile", "5", "--json")
	for _, l := range levels {
		if l.Failed > 0 || l.Good < 24 || l.CPU < 30*time.Millisecond {
			t.Errorf("%d callers for each core: %+v", l.Load, l)
		}
	}
	if len(levels) != 2 {
		t.Errorf("%d levels", len(levels))
	}
}
