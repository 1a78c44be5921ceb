package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"temper/internal/config"
	"temper/workers"
)

// TestSandboxFlagsAreDescribed holds docs/sandbox.md to the flags that there are.
func TestSandboxFlagsAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*cobra.Command{sandboxCommand(), gatewayCommand()} {
		flags := regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(cmd.UsageString(), -1)
		if len(flags) < 8 {
			t.Errorf("%s: found only the flags %q", cmd.Name(), flags)
		}
		for _, f := range flags {
			if !strings.Contains(string(page), "`--"+f[1]+"`") {
				t.Errorf("docs/sandbox.md does not tell of %s --%s", cmd.Name(), f[1])
			}
		}
	}
}

// TestServiceSharesItsToken: the sandbox of temper up answers to its own trainer
// and to nobody who does not know the token.
func TestServiceSharesItsToken(t *testing.T) {
	tokens := func() []string {
		t.Helper()
		p := config.DefaultProcess()
		children, err := upChildren(&p, &upOptions{require: []string{"seccomp", "uid"}})
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
	if diff := cmp.Diff(tokens(), []string{"sandbox chosen", "worker chosen", "trainer chosen"}); diff != "" {
		t.Errorf("tokens (-got +want):\n%s", diff)
	}
	t.Setenv(workers.SandboxTokenKey, "")
	first, second := tokens(), tokens()
	_, made, _ := strings.Cut(first[0], " ")
	if diff := cmp.Diff(first, []string{"sandbox " + made, "worker ", "trainer " + made}); diff != "" || len(made) < 20 {
		t.Errorf("tokens (-got +want), the first of %d characters:\n%s", len(made), diff)
	}
	if first[0] == second[0] {
		t.Error("two services have the same token")
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "3KiB": 3 << 10, "24GiB": 24 << 30, "1TiB": 1 << 40} {
		var b byteSize
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%s: got %d, %v; want %d", text, int64(b), err, want)
		}
	}
	for _, text := range []string{"", "-1", "GiB", "1.5GiB", "1 GiB", "24GB", "9000000TiB", "8388608TiB", "9223372036854775808"} {
		var b byteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q is taken for %d", text, int64(b))
		}
	}
}

func TestNumericFinding(t *testing.T) {
	for want, installed := range map[string][]string{
		"numpy, sympy, scipy":                   {"scipy", "numpy", "pandas", "sympy"},
		"sympy; not installed: numpy, scipy":    {"sympy"},
		"none of numpy, sympy, scipy: programs": {"pandas"},
	} {
		if got := numericFinding(installed); !strings.HasPrefix(got, want) {
			t.Errorf("%v: got %q, want %q", installed, got, want)
		}
	}
}
