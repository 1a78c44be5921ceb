package plugin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests of this file are inside the package: two schemes on one host, and patience that
// is shorter than a minute, cannot be had from outside.

// TestPasswordsStayUnderTLS: an index with TLS that names its files without it does not get
// its password sent in clear.
func TestPasswordsStayUnderTLS(t *testing.T) {
	index, err := url.Parse("https://me:hush@host/simple/maker/")
	if err != nil {
		t.Fatal(err)
	}
	page := *index
	page.User = nil // as after a redirect
	for href, want := range map[string]string{
		"../../files/x#sha256=1": "https://me:hush@host/files/x", "https://host/files/x": "https://me:hush@host/files/x",
		"http://host/files/x": "http://host/files/x", "https://other/files/x": "https://other/files/x", "http://you:too@host/x": "http://you:too@host/x",
	} {
		if at, err := fileAt(index, &page, href); err != nil || at.String() != want {
			t.Errorf("%s: %v (%v), want %s", href, at, err, want)
		}
	}
}

// TestSilenceEndsADownload, and a slow one of which something comes goes on.
func TestSilenceEndsADownload(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("begin"))
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		for range 30 {
			_, _ = w.Write([]byte("a little "))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	fetch := func(ctx context.Context, name string) error {
		at, err := url.Parse(server.URL + name)
		if err != nil {
			t.Fatal(err)
		}
		return download(ctx, http.DefaultClient, at, filepath.Join(t.TempDir(), "x"), 1<<20, 2*time.Second)
	}
	if err := fetch(t.Context(), "/silent"); err == nil || !strings.Contains(err.Error(), "/silent: nothing came for 2s") {
		t.Errorf("a download of which nothing more comes: %v", err)
	}
	if err := fetch(t.Context(), "/slow"); err != nil {
		t.Errorf("a slow download: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := fetch(ctx, "/silent"); err == nil || strings.Contains(err.Error(), "nothing came") {
		t.Errorf("a download that its caller ends: %v", err)
	}
}
