package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"temper/sandbox/httpapi"
)

// socketMode lets nobody but the owner connect to a Unix socket.
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

// resolve finds the address to bind to and refuses one at which anybody could
// run programs.
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

// ListenUnix makes a socket that nobody but the owner may connect to. It replaces a socket
// file that nobody serves, and no other file.
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
	// Nothing is accepted before this: who connected earlier waits in vain.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// reason strips what an error of net repeats of the address.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
