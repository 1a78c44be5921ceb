package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/freeport"
)

func s3dProcess(t *testing.T) *config.Process {
	t.Helper()
	addrs, err := freeport.Addresses(1) // which users other than root may listen on, too
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
	if _, err := openStore(t.Context(), p); err != nil {
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
	children, err := upChildren(p, &upOptions{})
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

// outage is a store whose server is away for some calls.
type outage struct {
	blob.Store
	left *int
	err  error
}

func (o outage) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if *o.left--; *o.left >= 0 {
		return nil, fmt.Errorf("get: %w", o.err)
	}
	return o.Store.Get(ctx, key)
}

func TestFollowOutlivesAnOutageOfTheStore(t *testing.T) {
	left := 3
	var lines strings.Builder
	store := outage{memblob.New(), &left, blob.ErrUnavailable}
	f := newTail(store, "r", &lines)
	if err := f.last(t.Context()); err != nil || left > 0 {
		t.Errorf("last gave %v with %d failures left", err, left)
	}
	if got := strings.Count(lines.String(), "waiting for the store"); got != 1 {
		t.Errorf("the outage was told %d times:\n%s", got, lines.String())
	}
	left, store.err = 1, blob.ErrMisconfigured
	if err := newTail(store, "r", &lines).until(t.Context()); !errors.Is(err, blob.ErrMisconfigured) {
		t.Error("a store that refuses is waited for")
	}
}

func TestDoctorLooksForTheServerOfTheStore(t *testing.T) {
	p := s3dProcess(t)
	var said []string
	say := func(ok bool, what, detail string) { said = append(said, fmt.Sprint(ok, " ", what, " ", detail)) }
	storeFinding(t.Context(), p, say)
	p.Store = ""
	storeFinding(t.Context(), p, say)
	p.Store = "s3://temper/x"
	for _, key := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	storeFinding(t.Context(), p, say)
	for i, want := range []string{"false store", "true store " + p.Home, "false store"} {
		if !strings.HasPrefix(said[i], want) {
			t.Errorf("finding %d: %q, want it to begin with %q", i, said[i], want)
		}
	}
	if !strings.Contains(said[0], "./task build:s3d") || !strings.Contains(said[1], "takes conditional writes") || !strings.Contains(said[2], "AWS_ACCESS_KEY_ID") {
		t.Errorf("findings\n%s", strings.Join(said, "\n"))
	}
	if slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, "\n") }) {
		t.Errorf("a finding has several lines: %q", said)
	}
}

// TestUpRefusesAStoreThatRefuses before anything is started.
func TestUpRefusesAStoreThatRefuses(t *testing.T) {
	w := newWrongWorld(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`)) // the client may be gone
	}))
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
	var out, errs strings.Builder
	code := execute([]string{"up", "--store", "s3://b/p?path_style=true&endpoint=" + server.URL, "--temporal", w.closed, "--python", "sh", "--run", "../../configs/ci.yaml"}, &out, &errs)
	if code != cli.ExitUser || !strings.Contains(errs.String(), "credentials") || strings.Contains(errs.String(), "hunter2") {
		t.Errorf("exit code %d, stderr %q; want %d and what to do about the credentials", code, errs.String(), cli.ExitUser)
	}
	if out.Len() > 0 || asked.Load() == 0 || asked.Load() > 3 {
		t.Errorf("stdout %q after %d requests: something was started, or a refusal was tried again", out.String(), asked.Load())
	}
}
