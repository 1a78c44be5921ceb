//go:build integration

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/proc"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// TestRunOnS3 makes the pipeline's run on an S3 server with two processes that sample.
// The server and one of them die in the middle. The objects are those of a run on files
// with one process, byte for byte.
func TestRunOnS3(t *testing.T) {
	p := newPlace(t)
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	store := "s3d://" + addrs[0]
	up := p.start("up", "--run", ciConfig, "--run-id", "twin", "--exit", "--rollout-workers", "2", "--store", store)
	up.await(`^step +2/`, runTimeout)
	noAccount(t, p, up)
	up.killService("s3")
	up.killService("rollout-2")
	for _, name := range []string{"s3", "rollout-2"} {
		up.await(`^service `+name+`: healthy \(pid \d+\), restart 1 after: signal: killed`, time.Minute)
	}
	up.end(0, 2*runTimeout)
	noOrphans(t, 5*time.Second)
	if got, want := lastLine(up.text()), "s3://temper/runs/twin/summary.json"; got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	// The server keeps objects as files under their keys.
	got := filepath.Join(p.home, "s3/buckets/temper")
	if diff := runtest.CompareContents(calmTwin(t), contents(t, got)); len(diff) > 0 {
		t.Errorf("the run on S3 differs from the one on files: %+v", diff)
	}
	if out := p.temper(1, "run", "show", "twin", "--store", store); !strings.Contains(out, "unavailable") {
		t.Errorf("without the server:\n%s", out)
	}
	sameShards(t, twin.shards, shards(t, got))
}

// contents is what the run left in a folder of objects.
func contents(t *testing.T, dir string) runtest.Contents {
	t.Helper()
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := runtest.ReadContents(t.Context(), store, artifact.Layout{RunID: "twin"})
	if err != nil || len(c) < 50 {
		t.Fatalf("%d objects in %s (%v)", len(c), dir, err)
	}
	return c
}

// shards lists the weights and optimizer states of all checkpoints in a folder of objects.
func shards(t *testing.T, dir string) map[string]blob.Info {
	t.Helper()
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	infos, err := store.List(t.Context(), "cas/")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]blob.Info{}
	for _, i := range infos {
		out[i.Key] = i
	}
	return out
}

// sameShards compares the shards of a run on files with those of one on S3.
func sameShards(t *testing.T, want, got map[string]blob.Info) {
	t.Helper()
	for key := range want {
		if got[key].Size != want[key].Size {
			t.Errorf("shard %s has %d bytes on files and %d on S3", key, want[key].Size, got[key].Size)
		}
	}
	if len(want) == 0 {
		t.Error("no shards to compare")
	}
}

// noAccount looks for the secret of the store where programs of the model, other
// users and logs could see it.
func noAccount(t *testing.T, p *place, up *running) {
	t.Helper()
	path := filepath.Join(p.home, "s3/account")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the account has the mode %v (%v), want 0600", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, secret, found := bytes.Cut(bytes.TrimSpace(text), []byte("aws_secret_access_key = "))
	if !found {
		t.Fatalf("no secret in %s", path)
	}
	pid := up.await(`^service sandbox: healthy \(pid (\d+)\)`, time.Minute)[1]
	for _, path := range []string{fmt.Sprintf("/proc/%s/environ", pid), fmt.Sprintf("/proc/%s/cmdline", pid)} {
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 || bytes.Contains(data, secret) {
			t.Errorf("%s is unreadable or holds the secret (%v)", path, err)
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(p.home, "logs/*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs (%v)", err)
	}
	for _, path := range append(lines, logs...) {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, secret) { // processes end
			t.Errorf("%s holds the secret", path)
		}
	}
}
