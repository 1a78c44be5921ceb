package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"temper/internal/config"
)

// A role without a port of its own tells that it serves by a file with its
// process id; the file of a dead process does not count.

func readyPath(p *config.Process, role string) string {
	return filepath.Join(p.Home, "ready", role)
}

// announceReady writes the ready file of this process.
func announceReady(p *config.Process, role string) error {
	path := readyPath(p, role)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// readyFile is the health check of a role: its file names a living process.
func readyFile(p *config.Process, role string) func(context.Context) error {
	return func(context.Context) error {
		data, err := os.ReadFile(readyPath(p, role))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("%s: process %d is gone", role, pid)
		}
		return nil
	}
}
