package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSandboxFlagsAreDescribed holds docs/sandbox.md to the flags that there are.
func TestSandboxFlagsAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	roles := roleCommand(place())
	for _, name := range []string{roleSandbox, roleGateway} {
		cmd, _, err := roles.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		flags := regexp.MustCompile(`(?m)^ +(?:-h, )?--([a-z-]+)`).FindAllStringSubmatch(cmd.UsageString(), -1)
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
