package plugin_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/trainer/xla/plugin"
)

// wheelOf makes a wheel with a plugin of the given content, and its pin.
func wheelOf(t *testing.T, content string) (plugin.Pin, []byte) {
	t.Helper()
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	for name, text := range map[string]string{"maker/pjrt.so": content, "maker/__init__.py": "import os", "maker-1.2.dist-info/RECORD": "",
		"maker-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n", "maker-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: maker\nVersion: 1.2\n",
	} {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data.Bytes())
	return plugin.Pin{
		Name: "test", Package: "maker", Version: "1.2", Wheel: "maker-1.2-py3-none-any.whl",
		SHA256: hex.EncodeToString(sum[:]), Size: int64(data.Len()), Member: "maker/pjrt.so",
	}, data.Bytes()
}

// fakePip puts a python3 into PATH that stores its arguments and its standard input in log,
// and copies the wheel into the folder after --dest. It returns log.
func fakePip(t *testing.T, p plugin.Pin, wheel []byte) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	source := filepath.Join(dir, "source.whl")
	if err := os.WriteFile(source, wheel, 0o600); err != nil {
		t.Fatal(err)
	}
	scriptPip(t, fmt.Sprintf(`echo "$@" >>%[1]q
cat >>%[1]q
while [ "$1" != --dest ]; do shift; done
cp %q "$2"/%q
`, log, source, p.Wheel))
	return log
}

// scriptPip puts a python3 into PATH that runs the shell script.
func scriptPip(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it runs
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestInstallByPip(t *testing.T) {
	p, wheel := wheelOf(t, "a library")
	log := fakePip(t, p, wheel)
	dir := filepath.Join(t.TempDir(), "a", "b")
	t.Setenv(plugin.PathEnv, dir)
	for i := range 2 { // the second call has nothing to do
		path, fresh, err := plugin.Install(t.Context(), p, dir, plugin.Source{})
		if err != nil || fresh != (i == 0) {
			t.Fatalf("fresh %v, error %v", fresh, err)
		}
		if found, err := plugin.Find("test"); err != nil || found != path {
			t.Errorf("found %q, error %v; want %s", found, err, path)
		}
	}
	path := filepath.Join(dir, p.File())
	if data, err := os.ReadFile(path); err != nil || string(data) != "a library" {
		t.Errorf("plugin %q, error %v", data, err)
	}
	if in, err := plugin.Describe(path); err != nil || in.Version != "1.2" || plugin.Verify(path) != nil {
		t.Errorf("description %+v, error %v, verified %v", in, err, plugin.Verify(path))
	}
	if err := os.WriteFile(path, []byte("a librarX"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Verify(path); err == nil || !strings.Contains(err.Error(), "has changed since it was installed from maker 1.2") {
		t.Errorf("a plugin that was changed: %v", err)
	}
	if _, fresh, err := plugin.Install(t.Context(), p, dir, plugin.Source{}); err != nil || !fresh || plugin.Verify(path) != nil {
		t.Errorf("installed again: fresh %v, error %v", fresh, err)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(calls), "-m pip download"); n != 2 {
		t.Errorf("%d downloads, want 2", n)
	}
	for _, want := range []string{"--require-hashes --no-deps --only-binary=:all: --platform any --dest ", "maker==1.2 --hash=sha256:" + p.SHA256 + "\n"} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("pip was called with %q, want %q", calls, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".install-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// TestAWrongWheelChangesNothing: a wheel with other bytes, or a part of one, does not
// replace a plugin that works.
func TestAWrongWheelChangesNothing(t *testing.T) {
	p, wheel := wheelOf(t, "works")
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), p.Wheel)
	if err := os.WriteFile(file, wheel, 0o600); err != nil {
		t.Fatal(err)
	}
	path, _, err := plugin.Install(t.Context(), p, dir, plugin.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	newer, other := wheelOf(t, "newer")
	for name, served := range map[string][]byte{"other bytes": wheel, "half of it": other[:len(other)/2], "too much": append(other[:len(other):len(other)], 0)} {
		if err := os.WriteFile(file, served, 0o600); err != nil {
			t.Fatal(err)
		}
		fakePip(t, newer, served)
		for _, from := range []plugin.Source{{}, {File: file}} {
			_, _, err := plugin.Install(t.Context(), newer, dir, from)
			if err == nil || !strings.Contains(err.Error(), "with the SHA-256") || !strings.Contains(err.Error(), newer.SHA256) {
				t.Errorf("%s: %v", name, err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "works" || plugin.Verify(path) != nil {
				t.Errorf("%s: the plugin is %q, error %v", name, data, err)
			}
		}
	}
	newer.Member = "maker/absent.so"
	fakePip(t, newer, other)
	if _, _, err := plugin.Install(t.Context(), newer, dir, plugin.Source{}); err == nil || plugin.Verify(path) != nil {
		t.Errorf("a wheel without the plugin: %v", err)
	}
}

// TestInstallErrors: each error is one line with pip's reason, the command to run where pip
// works, and the way back.
func TestInstallErrors(t *testing.T) {
	p, _ := wheelOf(t, "x")
	line := "run: echo 'maker==1.2 --hash=sha256:" + p.SHA256 + "' | python3 -m pip download --no-input --require-hashes --no-deps --only-binary=:all: --platform any --dest . --requirement /dev/stdin; then temper backend install test --from maker-1.2-py3-none-any.whl"
	install := func(want string) {
		t.Helper()
		_, _, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), line) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q and the command", err, want)
		}
	}
	scriptPip(t, "echo 'ERROR: No matching distribution found for maker==1.2' >&2\necho '[notice] a new release' >&2\nexit 1\n")
	install("download maker 1.2: ERROR: No matching distribution found for maker==1.2; ")
	scriptPip(t, "echo '/usr/bin/python3: No module named pip' >&2\nexit 1\n")
	install("download maker 1.2: this machine has no pip; ")
	scriptPip(t, "exit 3\n")
	install("download maker 1.2: pip: exit status 3; ")
	t.Setenv("PATH", t.TempDir())
	install("download maker 1.2: this machine has no pip; ")

	scriptPip(t, "exec sleep 60\n")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, _, err := plugin.Install(ctx, p, t.TempDir(), plugin.Source{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a download that its caller ends: %v", err)
	}
}

// TestInstallByARealPip downloads from an index behind a password, which no error shows.
func TestInstallByARealPip(t *testing.T) {
	if exec.CommandContext(t.Context(), "python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("no pip (2026-11-27: a system without it)")
	}
	p, wheel := wheelOf(t, "a library")
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/maker/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href='/files/%s'>%[1]s</a></body></html>", p.Wheel)
	})
	mux.HandleFunc("/files/"+p.Wheel, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "hush" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for _, env := range os.Environ() {
		if key, _, _ := strings.Cut(env, "="); strings.HasPrefix(key, "PIP_") {
			t.Setenv(key, "") // restores the variable at the end
			if err := os.Unsetenv(key); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("PIP_CACHE_DIR", t.TempDir())
	t.Setenv("PIP_RETRIES", "0")
	index := func(user string) string { return strings.Replace(server.URL, "://", "://"+user+"@", 1) + "/simple" }
	t.Setenv("PIP_INDEX_URL", index("me:hush"))
	path, fresh, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{})
	if err != nil || !fresh || plugin.Verify(path) != nil {
		t.Errorf("fresh %v, error %v", fresh, err)
	}
	other := p
	other.SHA256 = strings.Repeat("0", 64)
	if _, _, err := plugin.Install(t.Context(), other, t.TempDir(), plugin.Source{}); err == nil || !strings.Contains(err.Error(), "python3 -m pip download") {
		t.Errorf("another hash: %v", err)
	}
	for _, wrong := range []string{index("me:secret"), "http://me:secret@127.0.0.1:1/simple"} {
		t.Setenv("PIP_INDEX_URL", wrong)
		if _, _, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{}); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestPinOf(t *testing.T) {
	for _, name := range plugin.Names() {
		p, err := plugin.PinOf(name)
		if err != nil || len(p.SHA256) != 64 || p.Size < 1<<20 || !strings.HasSuffix(p.Member, ".so") || !strings.Contains(p.Wheel, p.Version) {
			t.Errorf("%s: %+v, error %v", name, p, err)
		}
	}
	if _, err := plugin.PinOf("tpu"); err == nil || !strings.Contains(err.Error(), "want one of cpu, cuda, rocm") {
		t.Errorf("unknown plugin: %v", err)
	}
}

// TestNeeds lists the libraries that a library of this system needs, and the missing ones.
func TestNeeds(t *testing.T) {
	library := ""
	for _, path := range []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"} {
		if _, err := os.Stat(path); err == nil {
			library = path
		}
	}
	if library == "" {
		t.Skip("no libm.so.6 (2026-11-23: a system with another C library)")
	}
	needs, err := plugin.Needs(library, []string{"libabsent.so.1", "libgone.so.2", "libc.so.6"})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range needs {
		found = found || l.Name == "libc.so.6" && l.Path != "" && !l.Opened
	}
	if missing := strings.Join(plugin.Missing(needs), " "); !found || missing != "libabsent.so.1 libgone.so.2" {
		t.Errorf("needs %+v, missing %q", needs, missing)
	}
	text := filepath.Join(t.TempDir(), "x.so")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plugin.Needs(text, nil); err == nil || !strings.Contains(err.Error(), "is not a shared library") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a text: %v", err)
	}
}
