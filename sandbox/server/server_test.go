package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/sandbox/httpapi"
	"temper/sandbox/server"
)

// start serves handler until the test ends or stop is called, which returns what
// Serve returned.
func start(t *testing.T, cfg server.Config, handler http.HandlerFunc, hooks server.Hooks) (url string, stop func() error) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, handler, hooks) }()
	stopped := false
	stop = func() error {
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if !stopped {
			if err := stop(); err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return s.URL(), stop
}

// client speaks the given protocol only.
func client(t *testing.T, config *tls.Config, set func(*http.Protocols)) *http.Client {
	var p http.Protocols
	set(&p)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &p}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }

func proto(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }

func get(t *testing.T, c *http.Client, url string, edit func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestProtocols(t *testing.T) {
	ca := newAuthority(t)
	files := ca.issue("server", 1)
	plain, _ := start(t, server.Config{}, proto, server.Hooks{})
	secure, _ := start(t, server.Config{TLS: files}, proto, server.Hooks{})
	for _, c := range []struct {
		url  string
		set  func(*http.Protocols)
		want string
	}{
		{plain, http1, "HTTP/1.1"}, {plain, h2c, "HTTP/2.0"}, {secure, http1, "HTTP/1.1"}, {secure, http2, "HTTP/2.0"},
	} {
		if _, got := get(t, client(t, ca.trust(), c.set), c.url, nil); got != c.want {
			t.Errorf("%s: got %q, want %q", c.url, got, c.want)
		}
	}
}

func TestToken(t *testing.T) {
	url, _ := start(t, server.Config{Token: "secret"}, proto, server.Hooks{})
	c := client(t, nil, http1)
	for _, tt := range []struct {
		path, header string
		want         int
	}{
		{"/v1/execute", "", 401},
		{"/v1/execute", "Bearer secre", 401},
		{"/v1/execute", "secret", 401},
		{"/v1/execute", "Bearer secret", 200},
		{"/v1/execute", "bearer secret", 200}, // schemes are case-insensitive
		{"/v1/execute", "Basic secret", 401},
		{"/metrics", "", 401},
		{httpapi.PathHealth, "", 401}, // a POST: only the check itself is open
	} {
		got, body := get(t, c, url+tt.path, func(r *http.Request) { r.Header.Set("Authorization", tt.header) })
		if got != tt.want {
			t.Errorf("%s with %q: got %d %s, want %d", tt.path, tt.header, got, body, tt.want)
		}
	}
	for _, path := range []string{httpapi.PathHealth, httpapi.PathReady, "/ping"} {
		if got, _ := get(t, c, url+path, func(r *http.Request) { r.Method = http.MethodGet }); got != 200 {
			t.Errorf("GET %s without a token: got %d, want 200", path, got)
		}
	}
}

func TestPagesOfBrowsersAreRefused(t *testing.T) {
	open, _ := start(t, server.Config{}, proto, server.Hooks{})
	guarded, _ := start(t, server.Config{Token: "secret"}, proto, server.Hooks{})
	c := client(t, nil, http1)
	for _, tt := range []struct {
		name string
		url  string
		edit func(*http.Request)
		want int
	}{
		{"local program", open, func(*http.Request) {}, 200},
		{"other site", open, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"other origin", open, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		{"name that resolves here", open, func(r *http.Request) { r.Host = "evil.example:8765" }, 403},
		{"localhost", open, func(r *http.Request) { r.Host = "localhost:8765" }, 200},
		{"empty name", open, func(r *http.Request) { r.Host = ":8765" }, 403},
		{"IPv6", open, func(r *http.Request) { r.Host = "[::1]:8765" }, 200},
		{"name and token", guarded, func(r *http.Request) {
			r.Host = "sandbox.example"
			r.Header.Set("Authorization", "Bearer secret")
		}, 200},
	} {
		if got, body := get(t, c, tt.url, tt.edit); got != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.name, got, body, tt.want)
		}
	}
}

func TestNewNamesWhatItCannotUse(t *testing.T) {
	ca := newAuthority(t)
	good, other := ca.issue("a", 1), ca.issue("b", 2)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("not PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		name string
		cfg  server.Config
		want string
	}{
		{"every address", server.Config{Listen: ":0"}, "set TEMPER_SANDBOX_TOKEN, or allow it with --insecure"},
		{"every IPv4 address", server.Config{Listen: "0.0.0.0:0"}, "other machines can reach it"},
		{"address of the network", server.Config{Listen: "192.0.2.1:80"}, "other machines can reach it"},
		{"address of nobody here", server.Config{Listen: "192.0.2.1:0", Token: "x"}, "192.0.2.1:0: bind: cannot assign requested address"},
		{"busy port", server.Config{Listen: busy.Addr().String()}, "bind: address already in use"},
		{"no port", server.Config{Listen: "8765"}, "missing port"},
		{"socket without a folder", server.Config{Listen: "unix:/nowhere/at/all"}, "no such file"},
		{"key alone", server.Config{TLS: server.TLSFiles{Key: good.Key}}, "--tls-cert is missing"},
		{"certificate alone", server.Config{TLS: server.TLSFiles{Cert: good.Cert}}, "--tls-key is missing"},
		{"missing certificate", server.Config{TLS: server.TLSFiles{Cert: "none.pem", Key: good.Key}}, "TLS certificate: open none.pem: no such file"},
		{"text as certificate", server.Config{TLS: server.TLSFiles{Cert: text, Key: good.Key}}, "TLS certificate " + text},
		{"key of another", server.Config{TLS: server.TLSFiles{Cert: good.Cert, Key: other.Key}}, "private key does not match"},
		{"text as authority", server.Config{TLS: server.TLSFiles{Cert: good.Cert, Key: good.Key, ClientCA: text}}, "TLS authorities " + text + ": no PEM certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cfg.Listen == "" {
				c.cfg.Listen = "127.0.0.1:0"
			}
			_, err := server.New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line with %q", err, c.want)
			}
		})
	}
	err = server.Config{Listen: "0.0.0.0:0", TLS: server.TLSFiles{Key: good.Key}}.Check()
	if err == nil || !strings.Contains(err.Error(), "--insecure\n--tls-cert is missing") {
		t.Errorf("Check tells %v, want both mistakes", err)
	}
	if err := (server.Config{Listen: "unix:/nowhere/at/all"}).Check(); err != nil {
		t.Errorf("Check of a socket: %v", err)
	}
	s, err := server.New(server.Config{Listen: "0.0.0.0:0", Insecure: true})
	if err != nil {
		t.Fatalf("with Insecure: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestUnixSocketIsTheOwners(t *testing.T) {
	path := t.TempDir() + "/s"
	if l, err := net.Listen("unix", path); err != nil {
		t.Fatal(err)
	} else {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close() // the file of a process that was killed
	}
	url, _ := start(t, server.Config{Listen: "unix:" + path}, proto, server.Hooks{})
	if url != "unix:"+path {
		t.Errorf("URL %q", url)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v, %v; want 0600", info.Mode(), err)
	}
	if _, err := server.New(server.Config{Listen: "unix:" + path}); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("second server: %v", err)
	}
}

func TestClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	files := ca.issue("server", 1)
	files.ClientCA = ca.file
	url, _ := start(t, server.Config{TLS: files}, proto, server.Hooks{})
	mine, theirs := ca.issue("client", 2), stranger.issue("client", 3)
	for _, c := range []struct {
		name      string
		cert, key string
		ok        bool
	}{{"no certificate", "", "", false}, {"of another authority", theirs.Cert, theirs.Key, false}, {"of ours", mine.Cert, mine.Key, true}} {
		config, err := server.ClientTLS(ca.file, c.cert, c.key)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client(t, config, http2).Post(url, "", nil)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestCertificateIsReloaded(t *testing.T) {
	ca := newAuthority(t)
	files := ca.issue("server", 1)
	var log bytes.Buffer
	url, _ := start(t, server.Config{TLS: files, Logger: slog.New(slog.NewTextHandler(&log, nil))}, proto, server.Hooks{})
	serial := func() int64 {
		c := client(t, ca.trust(), http1)
		resp, err := c.Post(url, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		c.CloseIdleConnections()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("serial %d before the change", got)
	}
	if err := os.WriteFile(files.Key, []byte("half a k"), 0o600); err != nil { // as seen in the middle of a change
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond)
	if got := serial(); got != 1 {
		t.Errorf("serial %d while the files cannot be used, want that of before", got)
	}
	ca.issue("server", 7)
	time.Sleep(1100 * time.Millisecond)
	if got := serial(); got != 7 {
		t.Errorf("serial %d after the change, want 7", got)
	}
	if text := log.String(); !strings.Contains(text, "cannot be used") || !strings.Contains(text, "certificate reloaded") {
		t.Errorf("log lacks the failure or the reload:\n%s", text)
	}
}

// TestDrain: a stream with work inside gets its answer, new requests are
// answered meanwhile, and an idle stream does not hold up the end.
func TestDrain(t *testing.T) {
	working, finish := make(chan struct{}), make(chan struct{})
	draining := make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/work":
			_ = http.NewResponseController(w).Flush()
			close(working)
			<-finish
			fmt.Fprintln(w, "done")
		case "/idle":
			fmt.Fprintln(w, "open")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	url, stop := start(t, server.Config{}, handler, server.Hooks{
		Drain: func() { close(draining) },
		Finish: func(ctx context.Context) error {
			select {
			case <-finish:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	c := client(t, nil, h2c)
	lines := func(path string) *bufio.Scanner {
		resp, err := c.Post(url+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewScanner(resp.Body)
	}
	idle, work := lines("/idle"), lines("/work")
	if !idle.Scan() {
		t.Fatal("no first line of the idle stream")
	}
	<-working
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	<-draining
	if status, _ := get(t, c, url+"/new", nil); status != http.StatusServiceUnavailable {
		t.Errorf("request during the drain: got %d, want the handler's 503", status)
	}
	select {
	case err := <-ended:
		t.Fatalf("Serve returned %v with work inside", err)
	default:
	}
	close(finish)
	if !work.Scan() || work.Text() != "done" {
		t.Errorf("the answer of the work is %q, %v", work.Text(), work.Err())
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestDrainTimeout(t *testing.T) {
	_, stop := start(t, server.Config{}, proto, server.Hooks{
		Timeout: time.Millisecond,
		Finish:  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	if err := stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve: %v, want a deadline exceeded", err)
	}
}

func TestWriteReady(t *testing.T) {
	var out bytes.Buffer
	if err := server.WriteReady(&out, "127.0.0.1:1", map[string]any{"nodes": 3}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"address":"127.0.0.1:1","nodes":3,"ready":true}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
