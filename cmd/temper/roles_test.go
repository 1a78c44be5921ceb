package main

import (
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/cli"
)

// TestRoleFlags: a role that is told nonsense says so before it reaches for anything.
func TestRoleFlags(t *testing.T) {
	w := newWrongWorld(t)
	t.Setenv("NOMAD_ADDR", "http://"+w.closed)
	empty := filepath.Join(w.dir, "empty.yaml")
	w.write(empty, "{}\n")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"role control --rollout-shards 0", cli.ExitUser, "--rollout-shards: is 0, want 1 to 256"},
		{"role control --rollout-shards 257", cli.ExitUser, "--rollout-shards: is 257"},
		{"role control --cluster /none", cli.ExitUser, "--cluster: cluster: open /none: no such file or directory"},
		{"role control --cluster " + empty, cli.ExitUser, `name: is "", want 1 to 32 lower-case letters`},
		{"role control --cluster ../../deploy/single.cluster.yaml", cli.ExitSystem, "--cluster: the scheduler does not answer: list nodes: no answer from Nomad at http://" + w.closed},
		{"role control --listen here", cli.ExitUser, `--listen: address "here": want host:port or unix:/path`},
		{"role trainer --listen 0.0.0.0:0", cli.ExitUser, "--listen: address 0.0.0.0:0: other machines can reach it"},
		{"role rollout --listen unix:relative", cli.ExitUser, "absolute path"},
		{"role rollout --slots 0", cli.ExitUser, "--slots: is 0, want at least 1"},
		{"role rollout --concurrent-rollouts 0", cli.ExitUser, "--concurrent-rollouts: is 0, want at least 1"},
		{"role trainer --with-rollouts --concurrent-rollouts -1", cli.ExitUser, "--concurrent-rollouts: is -1"},
		{"role trainer --resident-runs -1", cli.ExitUser, "--resident-runs -1"},
		{"up --rollout-workers -1", cli.ExitUser, "--rollout-workers: is -1, want 0 to 64"},
		{"role rollout --engines here", cli.ExitUser, `--engines: engine address "here": want host:port`},
		{"role rollout --engines a:1,a:1", cli.ExitUser, "--engines: a:1 is named twice"},
		{"role rollout --engines a:1, --engine-token-file /none", cli.ExitUser, "--token-file: open /none"},
		{"role rollout --engine-token-file /none", cli.ExitUser, "--engine-token-file: is for --engines"},
		{"role engine --name a/b --slots 0", cli.ExitUser, "--run: is missing"},
		{"role engine --name a/b --slots 0", cli.ExitUser, `--name: is "a/b", want 1 to 63 letters`},
		{"role engine --name a/b --slots 0", cli.ExitUser, "--slots 0, --capacity 0: want at least 1 and 0"},
		{"role engine --run nobody --capacity 0", cli.ExitUser, "--capacity: is 0 tokens, want at least one context"},
		{"role engine --run nobody --capacity -5", cli.ExitUser, "--capacity -5"},
		{"role engine --run nobody --drain -1s", cli.ExitUser, "--drain -1s"},
		{"role engine --run nobody --backend none", cli.ExitUser, "--backend: "},
		{"role engine --run nobody --listen 0.0.0.0:0 --advertise a:1", cli.ExitUser, "--listen 0.0.0.0:0: other machines can reach it and there is no token: set TEMPER_ENGINE_TOKEN"},
		{"role engine --run nobody --listen 0.0.0.0:0 --insecure", cli.ExitUser, "--advertise is missing"},
		{"role engine --run nobody --advertise here", cli.ExitUser, `--advertise: engine address "here"`},
		{"role engine --run nobody --token-file /none", cli.ExitUser, "--token-file: open /none"},
		{"role engine --run nobody --home " + w.dir, cli.ExitUser, `run "nobody" is not in the store`},
		{"role rollout --listen " + w.busy, cli.ExitSystem, "health address " + w.busy + ": bind: address already in use"},
		{"role rollout --temporal " + w.closed, cli.ExitSystem, "no Temporal server answers at " + w.closed},
	} {
		var out, errs strings.Builder
		if code := execute(strings.Fields(c.args), &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("temper %s: exit code %d, output %q, error %q; want %d and %q", c.args, code, out.String(), errs.String(), c.code, c.want)
		}
	}
	for _, address := range []string{"here", "http://" + w.closed} { // one line each
		t.Setenv("NOMAD_ADDR", address)
		var errs strings.Builder
		execute(strings.Fields("role control --cluster ../../deploy/single.cluster.yaml"), &strings.Builder{}, &errs)
		if text := errs.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, address) || !strings.Contains(text, "NOMAD_ADDR") {
			t.Errorf("NOMAD_ADDR=%s: %q, want one line that names it", address, text)
		}
	}
	t.Setenv("NOMAD_ADDR", "here")
	t.Setenv("NOMAD_ALLOC_ID", "a")
	for _, args := range []string{"role rollout --queue q", "role trainer --queue q"} {
		var errs strings.Builder
		if code := execute(strings.Fields(args), &strings.Builder{}, &errs); code != cli.ExitUser || !strings.Contains(errs.String(), `the address of Nomad is "here"`) {
			t.Errorf("temper %s: exit code %d, error %q", args, code, errs.String())
		}
	}
}
