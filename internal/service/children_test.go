package service

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/workers"
)

// TestChildren: who samples depends on the number of rollout workers alone.
func TestChildren(t *testing.T) {
	token := regexp.MustCompile(`(?m)^TEMPER_SANDBOX_TOKEN=.+$`)
	for n, want := range map[int][]string{
		0: {"sandbox", "control 1", "trainer --with-rollouts"},
		1: {"sandbox", "control 1", "trainer", "rollout-1"},
		3: {"sandbox", "control 3", "trainer", "rollout-1", "rollout-2", "rollout-3"},
	} {
		p := config.DefaultProcess()
		children, err := Children(&p, Options{RolloutWorkers: n})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		sockets := map[string]bool{}
		for _, c := range children {
			if len(c.After) != 0 {
				t.Errorf("%s starts after %q, and there is no server", c.Name, c.After)
			}
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
			if secret := token.MatchString(strings.Join(c.Env, "\n")); secret != (c.Name != "control") || strings.Contains(args, "token") {
				t.Errorf("%s: has the token of the sandbox: %v", c.Name, secret)
			}
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(sockets) != len(want) {
			t.Errorf("%d rollout workers: children %q at %d addresses, want %q", n, got, len(sockets), want)
		}
	}
}

// TestRolesStartAfterTheServers and beside the sandbox.
func TestRolesStartAfterTheServers(t *testing.T) {
	p := config.DefaultProcess()
	p.Home, p.Store = t.TempDir(), "s3d://127.0.0.1:9000"
	children, err := Children(&p, Options{Embedded: true, RolloutWorkers: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, c := range children {
		got[c.Name] = c.After
	}
	servers := []string{"temporal", "s3"}
	want := map[string][]string{"temporal": {}, "s3": {}, "sandbox": {}, "control": servers, "trainer": servers, "rollout-1": servers}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("who starts after whom (-got +want):\n%s", diff)
	}
}

// TestServiceSharesItsToken: the sandbox of temper up answers to its own trainer
// and to nobody who does not know the token.
func TestServiceSharesItsToken(t *testing.T) {
	tokens := func() []string {
		t.Helper()
		p := config.DefaultProcess()
		children, err := Children(&p, Options{Require: []string{"seccomp", "uid"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range children {
			token := ""
			for _, kv := range c.Env { // the last one counts
				if v, ok := strings.CutPrefix(kv, workers.SandboxTokenKey+"="); ok {
					token = v
				}
			}
			got = append(got, c.Name+" "+token)
			if c.Name == "sandbox" && !slices.Contains(c.Args, "seccomp,uid") {
				t.Errorf("the sandbox is not told what is required: %q", c.Args)
			}
			if token != "" && strings.Contains(strings.Join(c.Args, " "), token) {
				t.Errorf("%s shows the token to all users of the machine: %q", c.Name, c.Args)
			}
		}
		return got
	}
	t.Setenv(workers.SandboxTokenKey, "chosen")
	if diff := cmp.Diff(tokens(), []string{"sandbox chosen", "control chosen", "trainer chosen"}); diff != "" {
		t.Errorf("tokens (-got +want):\n%s", diff)
	}
	t.Setenv(workers.SandboxTokenKey, "")
	first, second := tokens(), tokens()
	_, made, _ := strings.Cut(first[0], " ")
	if diff := cmp.Diff(first, []string{"sandbox " + made, "control ", "trainer " + made}); diff != "" || len(made) < 20 {
		t.Errorf("tokens (-got +want), the first of %d characters:\n%s", len(made), diff)
	}
	if first[0] == second[0] {
		t.Error("two services have the same token")
	}
}
