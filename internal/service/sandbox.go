package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"temper/internal/config"
	"temper/internal/proc"
	"temper/sandbox/httpapi"
	"temper/workers"
)

// StartSandbox starts a sandbox for one command: at a socket in a folder of its own,
// with a token that nobody else knows. stop ends it and removes the folder.
func StartSandbox(ctx context.Context, p *config.Process) (client *httpapi.Client, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	folder, err := os.MkdirTemp("", "temper-sandbox-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(folder) }
	place, token := *p, sandboxToken()
	place.SandboxAddress = httpapi.UnixPrefix + filepath.Join(folder, "socket")
	child := sandboxChild(&place, Options{}, self, workers.SandboxTokenKey+"="+token)
	child.LogFile = filepath.Join(folder, "log")
	s, err := proc.New(proc.Config{Children: []proc.Child{child}})
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	end := func() error { return errors.Join(s.Stop(context.WithoutCancel(ctx)), remove()) }
	client, err = httpapi.NewClient(place.SandboxAddress, httpapi.Options{Token: token})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return client, func() error { client.Close(); return end() }, nil
}
