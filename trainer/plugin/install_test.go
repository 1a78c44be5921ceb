package plugin_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/trainer/plugin"
)

// wheelOf makes a wheel with a plugin of the given content, and its pin.
func wheelOf(t *testing.T, content string) (plugin.Pin, []byte) {
	t.Helper()
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	for name, text := range map[string]string{"maker/pjrt.so": content, "maker/__init__.py": "import os", "maker-1.2.dist-info/RECORD": ""} {
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

// index serves a wheel as a private index does, behind a user and a password, and counts
// the downloads.
func index(t *testing.T, p plugin.Pin, wheel []byte, asJSON bool) (address string, downloads *int) {
	t.Helper()
	downloads = new(int)
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/maker/", func(w http.ResponseWriter, _ *http.Request) {
		if asJSON {
			w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
			fmt.Fprintf(w, `{"files": [{"filename": "maker-1.1-py3-none-any.whl", "url": "../../old"}, {"filename": %q, "url": "../../files/%[1]s"}]}`, p.Wheel)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<html><body><a href='../../old#sha256=00'>maker-1.1-py3-none-any.whl</a>\n<a data-x=\"1\" href=\"/files/%s#sha256=%s\">%[1]s</a></body></html>", p.Wheel, p.SHA256)
	})
	mux.HandleFunc("/files/"+p.Wheel, func(w http.ResponseWriter, _ *http.Request) { *downloads++; _, _ = w.Write(wheel) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "hush" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "://", "://me:hush@", 1) + "/simple", downloads
}

// withoutPip keeps the settings of this machine away.
func withoutPip(t *testing.T) {
	t.Helper()
	for _, key := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_NO_INDEX", "VIRTUAL_ENV", "XDG_CONFIG_HOME"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
}

func TestInstallFromAnIndex(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		withoutPip(t)
		p, wheel := wheelOf(t, "a library")
		address, downloads := index(t, p, wheel, asJSON)
		conf := filepath.Join(t.TempDir(), "pip.conf")
		if err := os.WriteFile(conf, []byte("[list]\nindex-url = http://127.0.0.1:1/\n[global]\n# private\nindex_url = "+address+"/\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PIP_CONFIG_FILE", conf)
		dir := filepath.Join(t.TempDir(), "a", "b")
		t.Setenv(plugin.PathEnv, dir)
		for i := range 2 { // the second time there is nothing to do
			path, fresh, err := plugin.Install(t.Context(), p, dir, plugin.Source{})
			if err != nil || fresh != (i == 0) {
				t.Fatalf("JSON %v: fresh %v, error %v", asJSON, fresh, err)
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
		if *downloads != 2 {
			t.Errorf("%d downloads, want 2", *downloads)
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".install-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, error %v", left, err)
		}
	}
}

// TestAWrongWheelChangesNothing: neither one with other bytes nor one that stops early
// takes the place of a plugin that works.
func TestAWrongWheelChangesNothing(t *testing.T) {
	withoutPip(t)
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
		address, _ := index(t, newer, served, true)
		t.Setenv("PIP_INDEX_URL", address)
		_, _, err := plugin.Install(t.Context(), newer, dir, plugin.Source{})
		if err == nil || !strings.Contains(err.Error(), "with the SHA-256") || !strings.Contains(err.Error(), newer.SHA256) {
			t.Errorf("%s: %v", name, err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "works" || plugin.Verify(path) != nil {
			t.Errorf("%s: the plugin is %q, error %v", name, data, err)
		}
	}
	newer.Member = "maker/absent.so"
	address, _ := index(t, newer, other, true)
	t.Setenv("PIP_INDEX_URL", address)
	if _, _, err := plugin.Install(t.Context(), newer, dir, plugin.Source{}); err == nil || plugin.Verify(path) != nil {
		t.Errorf("a wheel without the plugin: %v", err)
	}
}

// TestInstallErrors are one line each, and show no password.
func TestInstallErrors(t *testing.T) {
	p, wheel := wheelOf(t, "x")
	address, _ := index(t, p, wheel, true)
	other := p
	other.Wheel = "maker-9-py3-none-any.whl"
	wrong := strings.Replace(address, "hush", "secret", 1)
	for _, c := range []struct {
		set  map[string]string
		pin  plugin.Pin
		want string
	}{
		{map[string]string{"PIP_NO_INDEX": "1"}, p, "name it with --from"},
		{map[string]string{"PIP_INDEX_URL": "ftp://x/simple"}, p, "want an http or https address in PIP_INDEX_URL or pip.conf"},
		{map[string]string{"PIP_INDEX_URL": address}, other, "has no file maker-9-py3-none-any.whl"},
		{map[string]string{"PIP_INDEX_URL": wrong}, p, "401"},
		{map[string]string{"PIP_INDEX_URL": address, "PIP_CERT": "/absent.pem"}, p, "certificates of pip"},
		{map[string]string{"PIP_CONFIG_FILE": t.TempDir()}, p, "settings of pip"},
	} {
		withoutPip(t)
		for k, v := range c.set {
			t.Setenv(k, v)
		}
		_, _, err := plugin.Install(t.Context(), c.pin, t.TempDir(), plugin.Source{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: error %v, want one line with %q", c.set, err, c.want)
		}
	}
	for _, wrong := range []string{strings.Replace(wrong, "me:secret@", "secret@", 1), "http://secret@127.0.0.1:1/simple", "http://secret@127.0.0.1:x/simple"} {
		t.Setenv("PIP_INDEX_URL", wrong)
		if _, _, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	withoutPip(t)
	t.Setenv("PIP_INDEX_URL", wrong)
	t.Setenv("PIP_EXTRA_INDEX_URL", address)
	if _, _, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{}); err != nil {
		t.Errorf("the second index has it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := plugin.Install(ctx, p, t.TempDir(), plugin.Source{}); err == nil {
		t.Error("a download that was ended: no error")
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

// TestNeeds lists what a library of this system needs, and all that is missing.
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

// TestNoIndexOfPackages: where no setting names an index and no pip is there to ask, one
// line says what to set.
func TestNoIndexOfPackages(t *testing.T) {
	withoutPip(t)
	t.Setenv("PATH", t.TempDir())
	p, _ := wheelOf(t, "a library")
	_, _, err := plugin.Install(t.Context(), p, t.TempDir(), plugin.Source{})
	if err == nil || !strings.Contains(err.Error(), "set PIP_INDEX_URL, or name the wheel with --from") {
		t.Errorf("error %v", err)
	}
}
