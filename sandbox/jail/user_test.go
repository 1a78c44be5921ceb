//go:build integration

package jail_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/sandboxtest"
)

// TestOrdinaryUser runs the conformance and attack tests again without privileges.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("is an ordinary user already")
	}
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("needs an interpreter outside of root's home")
	}
	dir, err := os.MkdirTemp("/tmp", "jailtest") //nolint:usetesting // another user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what stays is swept with /tmp
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := dir + "/test"
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^(TestJailConforms|TestAttacks|TestEndings|TestPlainModeStillRuns)$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + python[:len(python)-len("/python3")] + ":/bin", "HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestJailConforms") {
		t.Errorf("the conformance suite did not run:\n%s", out)
	}
}

// TestVersions runs the conformance suite on the interpreters that TEMPER_PYTHONS
// names, separated by spaces.
func TestVersions(t *testing.T) {
	pythons := strings.Fields(os.Getenv("TEMPER_PYTHONS"))
	if len(pythons) == 0 {
		t.Skip("TEMPER_PYTHONS names no interpreters")
	}
	for _, python := range pythons {
		t.Run(python, func(t *testing.T) {
			j, in := open(t, jail.Config{Python: python})
			t.Logf("version %s, off: %v", j.Report().Version, j.Report().Off())
			sandboxtest.Run(t, func(*testing.T) sandbox.Executor { return executor{in} })
		})
	}
}
