package workers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"temper/sandbox/httpapi"
	"temper/sandbox/node"
	"temper/sandbox/server"
)

// LocalSandbox is a node of this process, for the programs of one person: it listens on a
// socket that only this user can open.
type LocalSandbox struct {
	*httpapi.Client
	stop func()
	done chan error
	dir  string
}

// StartSandbox starts a LocalSandbox with the interpreter of that name, in which so many
// programs run side by side. The caller closes it.
func StartSandbox(ctx context.Context, python string, size int, log *slog.Logger) (*LocalSandbox, error) {
	dir, err := os.MkdirTemp("", "temper-sandbox-") // for this user alone
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &LocalSandbox{stop: stop, done: make(chan error, 1), dir: dir}
	ready := make(chan node.Ready, 1)
	cfg := node.Config{
		Server: server.Config{Listen: httpapi.UnixPrefix + filepath.Join(dir, "s")}, Python: python,
		Zygotes: 1, Slots: size, Sessions: size, OnReady: func(r node.Ready) { ready <- r },
	}
	go func() { s.done <- node.Serve(serving, cfg, log) }()
	select {
	case r := <-ready:
		s.Client, err = httpapi.NewClient(r.Address, httpapi.Options{})
		if err == nil {
			return s, nil
		}
		return nil, errors.Join(err, s.Close())
	case err := <-s.done:
		s.done <- nil
		return nil, errors.Join(err, s.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Close())
	}
}

// Close ends the node with all programs, and returns when none is alive.
func (s *LocalSandbox) Close() error {
	if s.Client != nil {
		s.Client.Close()
	}
	s.stop()
	return errors.Join(<-s.done, os.RemoveAll(s.dir))
}
