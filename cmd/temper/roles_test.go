package main

import (
	"regexp"
	"strings"
	"testing"

	"temper/internal/cli"
	"temper/internal/config"
)

// TestRoleFlags: a role that is told nonsense says so before it reaches for anything.
func TestRoleFlags(t *testing.T) {
	w := newWrongWorld(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"worker --rollout-shards 0", cli.ExitUser, "--rollout-shards: is 0, want 1 to 256"},
		{"worker --rollout-shards 257", cli.ExitUser, "--rollout-shards: is 257"},
		{"worker --listen here", cli.ExitUser, `--listen: address "here": want host:port or unix:/path`},
		{"trainer --listen 0.0.0.0:0", cli.ExitUser, "--listen: address 0.0.0.0:0: other machines can reach it"},
		{"rollout --listen unix:relative", cli.ExitUser, "absolute path"},
		{"rollout --slots 0", cli.ExitUser, "--slots: is 0, want at least 1"},
		{"rollout --concurrent-rollouts 0", cli.ExitUser, "--concurrent-rollouts: is 0, want at least 1"},
		{"trainer --with-rollouts --concurrent-rollouts -1", cli.ExitUser, "--concurrent-rollouts: is -1"},
		{"trainer --resident-runs -1", cli.ExitUser, "--resident-runs -1"},
		{"up --rollout-workers -1", cli.ExitUser, "--rollout-workers: is -1, want 0 to 64"},
		{"rollout --listen " + w.busy, cli.ExitSystem, "health address " + w.busy + ": bind: address already in use"},
		{"rollout --temporal " + w.closed, cli.ExitSystem, "no Temporal server answers at " + w.closed},
	} {
		var out, errs strings.Builder
		if code := execute(strings.Fields(c.args), &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("temper %s: exit code %d, output %q, error %q; want %d and %q", c.args, code, out.String(), errs.String(), c.code, c.want)
		}
	}
}

// TestChildrenOfUp: who samples depends on the number of rollout workers alone.
func TestChildrenOfUp(t *testing.T) {
	w := newWrongWorld(t)
	token := regexp.MustCompile(`(?m)^TEMPER_SANDBOX_TOKEN=.+$`)
	for n, want := range map[int][]string{
		0: {"sandbox", "worker 1", "trainer --with-rollouts"},
		1: {"sandbox", "worker 1", "trainer", "rollout-1"},
		3: {"sandbox", "worker 3", "trainer", "rollout-1", "rollout-2", "rollout-3"},
	} {
		p := config.DefaultProcess()
		p.SandboxAddress = w.other
		children, err := upChildren(&p, &upOptions{rolloutWorkers: n})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		sockets := map[string]bool{}
		for _, c := range children {
			args := strings.Join(c.Args, " ")
			line := c.Name
			if _, rest, found := strings.Cut(args, "--rollout-shards "); found {
				line += " " + strings.Fields(rest)[0]
			}
			if strings.Contains(args, "--with-rollouts") {
				line += " --with-rollouts"
			}
			got = append(got, line)
			if _, rest, found := strings.Cut(args, "--listen "); found {
				sockets[strings.Fields(rest)[0]] = true
			}
			if secret := token.MatchString(strings.Join(c.Env, "\n")); secret != (c.Name != "worker") || strings.Contains(args, "token") {
				t.Errorf("%s: has the token of the sandbox: %v", c.Name, secret)
			}
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(sockets) != len(want) {
			t.Errorf("%d rollout workers: children %q at %d addresses, want %q", n, got, len(sockets), want)
		}
	}
}
