package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/proc"
	"temper/workers"
)

func s3dProcess(t *testing.T) *config.Process {
	t.Helper()
	addrs, err := proc.Addresses(1) // which users other than root may listen on, too
	if err != nil {
		t.Fatal(err)
	}
	p := config.DefaultProcess()
	p.Home, p.Store = t.TempDir(), "s3d://"+addrs[0]
	return &p
}

func TestStoreAccountIsMadeOnceForItsOwner(t *testing.T) {
	p := s3dProcess(t)
	access, secret, err := storeAccount(p)
	if err != nil || len(access) < 20 || len(secret) < 20 || access == secret {
		t.Fatalf("account %q, %q (%v), want two long texts", access, secret, err)
	}
	again, secretAgain, err := storeAccount(p)
	if err != nil || again != access || secretAgain != secret {
		t.Errorf("second call gave another account (%v)", err)
	}
	info, err := os.Stat(filepath.Join(p.S3Dir(), "account"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if _, err := workers.OpenStore(t.Context(), p); err != nil {
		t.Errorf("the store does not take the account: %v", err)
	}
	if err := os.WriteFile(filepath.Join(p.S3Dir(), "account"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storeAccount(p); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged account gave %v, want the way out", err)
	}
}

// TestOnlyTheServerGetsTheAccount looks at all that the children of temper up are given.
func TestOnlyTheServerGetsTheAccount(t *testing.T) {
	p := s3dProcess(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of-the-operator")
	access, secret, err := storeAccount(p)
	if err != nil {
		t.Fatal(err)
	}
	children, err := Children(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range children {
		seen[c.Name] = true
		args, env := strings.Join(c.Args, " "), strings.Join(c.Env, "\n")
		if strings.Contains(args, secret) || strings.Contains(args, access) {
			t.Errorf("%s has the account in its command line", c.Name)
		}
		if got := strings.Contains(env, secret); got != (c.Name == "s3") {
			t.Errorf("%s has the account in its environment: %t", c.Name, got)
		}
		if c.Name == "sandbox" && (strings.Contains(env, "AWS_") || strings.Contains(args, "s3d:") || strings.Contains(args, p.Home)) {
			t.Errorf("the sandbox learns of the store: %s %s", args, env)
		}
		if c.Name == "s3" && strings.Contains(env, "of-the-operator") {
			t.Error("the server has another account")
		}
	}
	if !seen["s3"] || !seen["sandbox"] || children[0].Name != "s3" {
		t.Errorf("children %v, want the server first", seen)
	}
}
