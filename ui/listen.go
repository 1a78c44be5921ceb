package ui

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TokenKey is the variable of the environment with the token of commands.
const TokenKey = "TEMPER_UI_TOKEN" //nolint:gosec // a name

// tokenBytes is how much chance a token holds.
const tokenBytes = 32

// Token returns the token of the environment, or the token in the file at path, which it
// creates if it is missing: only its owner can read it.
func Token(path string) (string, error) {
	if token := os.Getenv(TokenKey); token != "" {
		return token, nil
	}
	data, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(data))) >= tokenBytes {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("token of the dashboard: %w", err)
	}
	raw := make([]byte, tokenBytes)
	_, _ = rand.Read(raw) // never fails
	token := hex.EncodeToString(raw)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("token of the dashboard: %w", err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("token of the dashboard: %w", err)
	}
	return token, os.Rename(temporary, path)
}

// CheckListen reports what is wrong with an address, before anything is opened. One that
// other machines can reach needs insecure: nothing is encrypted.
func CheckListen(address string, insecure bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("is %q, want host:port", address)
	}
	if ip := net.ParseIP(host); !insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("is %s: other machines can reach it, and prompts and the token would cross the network as plain text: "+
			"put a server with TLS before it, or allow it with --insecure", address)
	}
	return nil
}

// Loopback reports whether only this machine can reach an address.
func Loopback(address string) bool { return CheckListen(address, false) == nil }

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	// lastWords is how long answers under way may take once the process ends.
	lastWords = 2 * time.Second
	// maxHeader bounds the header of a request.
	maxHeader = 16 << 10
)

// Listen opens an address. Port 0 takes the port that the file note names, where it is
// free, so that a page stays good when the process is started again, and any other
// otherwise. The file gets the address.
func Listen(ctx context.Context, address, note string) (net.Listener, error) {
	var config net.ListenConfig
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var l net.Listener
	if before, readErr := os.ReadFile(note); port == "0" && note != "" && readErr == nil {
		if oldHost, _, err := net.SplitHostPort(string(before)); err == nil && oldHost == host {
			l, _ = config.Listen(ctx, "tcp", string(before)) // if this fails, another process has it
		}
	}
	if l == nil {
		if l, err = config.Listen(ctx, "tcp", address); err != nil {
			return nil, fmt.Errorf("address of the dashboard: %w (choose another with --listen)", err)
		}
	}
	if note == "" {
		return l, nil
	}
	if err := os.WriteFile(note, []byte(l.Addr().String()), 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTime, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		s.Close()
		return err
	case <-ctx.Done():
	}
	s.Close() // ends the streams, which would hold the shutdown up
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if server.Shutdown(stop) != nil {
		_ = server.Close() // nothing is left to do when this fails
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
