package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"temper/sandbox/httpapi"
)

// socketMode lets only the owner connect to a Unix socket.
const socketMode = 0o600

// listen opens the address of cfg.
func listen(cfg Config) (net.Listener, error) {
	if path, isUnix := strings.CutPrefix(cfg.Listen, httpapi.UnixPrefix); isUnix {
		l, err := ListenUnix(path)
		if err != nil {
			return nil, fmt.Errorf("sandbox address %s: %w", cfg.Listen, err)
		}
		return l, nil
	}
	addr, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("sandbox address %s: %w", cfg.Listen, reason(err))
	}
	return l, nil
}

// resolve returns the address to bind to. It refuses one at which any client could run
// programs.
func (c Config) resolve() (*net.TCPAddr, error) {
	addr, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("sandbox address %q: %w", c.Listen, err)
	}
	if !addr.IP.IsLoopback() && c.Token == "" && !c.Insecure {
		return nil, fmt.Errorf("sandbox address %s: other machines can reach it and there is no token: set TEMPER_SANDBOX_TOKEN, or allow it with --insecure", c.Listen)
	}
	return addr, nil
}

// ListenUnix makes a socket to which only the owner may connect. It replaces a socket file
// without a server, and no other file.
func ListenUnix(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(errors.New("another process serves it"), conn.Close())
	}
	if info, err := os.Stat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, errors.New("there is a file that is no socket")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, reason(err)
	}
	// The server accepts no connection before this: an earlier client waits in vain.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// reason removes the address from an error of package net.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
