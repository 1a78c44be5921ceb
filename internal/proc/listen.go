package proc

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// CheckListen returns nil when this process could listen on addr (host:port) and
// otherwise one line that names it. Another process can take it right after.
func CheckListen(addr string) error {
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another process", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine", addr)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s needs more privileges to listen on", addr)
	case err != nil:
		return fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	return ln.Close()
}
