package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKillDuringFirstStart: whenever the first start dies, the next one works.
func TestKillDuringFirstStart(t *testing.T) {
	args := []string{"--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", "0"}
	db := args[1]
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 600 * time.Millisecond} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), roleEnv+"=server")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); !exists(db+".new") && !exists(db); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the server makes no file")
			}
		}
		time.Sleep(delay)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		whole, err := hasSchema(db)
		t.Logf("killed %v after the file appeared: whole %v, beside it %v", delay, whole, exists(db+".new"))
		if err != nil || whole != exists(db) {
			t.Fatalf("killed %v after the file appeared: whole %v, error %v; want a whole database or none", delay, whole, err)
		}
	}
	runDouble(t, dial(t, start(t, "server", args...).ready.Address), "wf", 1)
	if exists(db + ".new") {
		t.Error("the file of the killed start is still there")
	}
}

// TestHalfMadeFiles: what a start that was cut short leaves is made anew, what
// may be somebody's data is not touched.
func TestHalfMadeFiles(t *testing.T) {
	dir := t.TempDir()
	empty, other := filepath.Join(dir, "empty.db"), filepath.Join(dir, "other.db")
	for path, text := range map[string]string{empty: "", empty + ".new": "half", empty + ".new-journal": "half", other + ".txt": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := sqliteFile(empty).prepare(t.Context(), options{db: empty, namespace: "default", retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if whole, err := hasSchema(empty); err != nil || !whole {
		t.Errorf("the empty file is whole %v, error %v, want a database", whole, err)
	}
	admin, err := openAdmin(sqliteConfig(other, map[string]string{"mode": "rwc"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Exec("CREATE TABLE namespaces (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	exit, out := refuse(t, "--db", other, "--port", port(t), "--ui-port", "0")
	if exit != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, other+" lacks the table cluster_metadata_info") {
		t.Errorf("exit %d, output %q; want one line that names the file and the table", exit, out)
	}
	if after, err := os.ReadFile(other); err != nil || string(after) != string(before) {
		t.Errorf("the file of another program changed: %d bytes, error %v", len(after), err)
	}
}
