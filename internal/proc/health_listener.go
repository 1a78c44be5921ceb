package proc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// UnixPrefix begins the address of a Unix socket: unix:/path.
const UnixPrefix = "unix:"

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	// lastWords is how long an answer may take once the process ends.
	lastWords = time.Second
	// socketMode lets only the owner connect.
	socketMode = 0o600
)

// CheckAddress reports what is wrong with an address, before anything is opened: host:port
// or unix:/path. An address that other machines can reach needs insecure, because the
// listener answers every caller.
func CheckAddress(address string, insecure bool) error {
	if path, isUnix := strings.CutPrefix(address, UnixPrefix); isUnix {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("address %q: want unix:/path with an absolute path", address)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("address %q: want host:port or unix:/path", address)
	}
	if ip := net.ParseIP(host); !insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %s: other machines can reach it, and health and metrics have no token: allow it with --insecure", address)
	}
	return nil
}

// Listener serves a handler until it is closed.
type Listener struct {
	address string
	server  *http.Server
	done    chan struct{}
}

// Listen opens the address and serves the handler there. It replaces the file of a Unix
// socket that no process serves.
func Listen(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (*Listener, error) {
	l, err := open(ctx, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		handler = onlyByAddress(handler)
	}
	out := &Listener{address: address, done: make(chan struct{}), server: &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
	if !strings.HasPrefix(address, UnixPrefix) {
		out.address = l.Addr().String()
	}
	go func() {
		defer close(out.done)
		if err := out.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health is no longer served", "address", out.address, "err", err)
		}
	}()
	return out, nil
}

// Address is host:port, with the port that was found for port 0, or unix:/path.
func (l *Listener) Address() string { return l.address }

// Close ends the listener after a moment for answers under way, also when ctx has
// ended already.
func (l *Listener) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close() // nothing is left to do when this fails
	}
	<-l.done
}

// onlyByAddress refuses requests that name this machine by a foreign name: the name
// of a web page may resolve to it, and the page would read the answers.
func onlyByAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if r.Header.Get("Origin") != "" || host != "" && host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			http.Error(w, "name this machine by its address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func open(ctx context.Context, address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, UnixPrefix)
	if !isUnix {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("health address %s: %w", address, reason(err))
		}
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("health address %s: %w", address, err)
	}
	short, release, err := shorten(path)
	if err != nil {
		return nil, fmt.Errorf("health address %s: %w", address, err)
	}
	defer release()
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", short); err == nil {
		return nil, errors.Join(fmt.Errorf("health address %s: another process serves it", address), conn.Close())
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("health address %s: %w", address, err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", short)
	if err != nil {
		return nil, fmt.Errorf("health address %s: %w", address, reason(err))
	}
	// The short name is removed soon, and another process may then use it.
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("health address %s: %w", address, err), l.Close())
	}
	return l, nil
}

// shorten names a socket below its open folder: the kernel takes 107 bytes, and a
// home may be deeper than that.
func shorten(path string) (short string, release func(), err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil // only read
}

// reason strips what an error of net repeats of the address.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
