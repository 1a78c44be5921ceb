package proc

import (
	"errors"
	"io"
	"net"
)

// Addresses returns n different free addresses of this machine's loopback, as
// 127.0.0.1:port.
func Addresses(n int) ([]string, error) {
	out := make([]string, 0, n)
	for len(out) < n {
		addr, err := address()
		if err != nil {
			return nil, err
		}
		out = append(out, addr)
	}
	return out, nil
}

// address finds a port and leaves a connection of it behind that its server has
// ended: while the kernel remembers that one (TIME_WAIT), it gives the port only
// to those who name it.
func address() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	server, err := l.Accept()
	if err != nil {
		return "", err
	}
	if err := server.Close(); err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, client) // to its end: who ends first is who remembers
	return l.Addr().String(), err
}
