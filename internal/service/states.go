package service

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"temper/internal/config"
	"temper/internal/proc"
)

// Process is what the service knows of one of its processes.
type Process struct {
	Name     string    `json:"name"`
	PID      int       `json:"pid,omitempty"`
	State    string    `json:"state"`
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since"` // of State
	// LastExit is how the process before this one ended, "" where there was none.
	LastExit string `json:"last_exit,omitempty"`
	// Trouble is why it is not ready, "" where it is or is not asked.
	Trouble string `json:"trouble,omitempty"`
	// Metrics is what it says of itself in the text form of Prometheus, "" for nothing.
	Metrics string `json:"-"`
}

// statesPace is how often the states are written, where they have changed.
const statesPace = time.Second

// statesFile is where the service says how its processes are. It is gone with the service.
func statesFile(p *config.Process) string { return filepath.Join(socketDir(p), "states.json") }

// NoteStates keeps the states of the children in a file below the home until stop.
func NoteStates(ctx context.Context, p *config.Process, snapshot func() []proc.ChildState, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		var before []proc.ChildState
		for {
			if now := snapshot(); !slices.Equal(before, now) {
				if err := writeStates(p, now); err != nil {
					log.Warn("the states of the processes are not written", "err", err)
				}
				before = now
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(statesPace):
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

func writeStates(p *config.Process, states []proc.ChildState) error {
	out := make([]Process, len(states))
	for i, s := range states {
		out[i] = Process{Name: s.Name, PID: s.PID, State: string(s.State), Restarts: s.Restarts, Since: s.Since, LastExit: s.LastExit}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if err := os.WriteFile(statesFile(p)+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(statesFile(p)+".new", statesFile(p))
}

const (
	// askProcess bounds how long a process may take to say how it is.
	askProcess = 500 * time.Millisecond
	// maxMetrics bounds what it may say.
	maxMetrics = 1 << 20
)

// Processes returns the processes of the service of a home, with the state that each
// reports. Errors: fs.ErrNotExist if no service runs there.
func Processes(ctx context.Context, p *config.Process) ([]Process, error) {
	data, err := os.ReadFile(statesFile(p))
	if err != nil {
		return nil, err
	}
	var out []Process
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askProcess)
	defer cancel()
	var asked sync.WaitGroup
	for i := range out {
		address := healthSocket(p, out[i].Name)
		if out[i].Name == "sandbox" {
			address = p.SandboxAddress
		} else if _, err := os.Stat(address[len(proc.UnixPrefix):]); errors.Is(err, fs.ErrNotExist) {
			continue // a server of another maker
		}
		asked.Go(func() {
			if _, err := proc.Fetch(ctx, address, "/readyz", maxMetrics); err != nil {
				out[i].Trouble = err.Error()
				return
			}
			if text, err := proc.Fetch(ctx, address, "/metrics", maxMetrics); err == nil {
				out[i].Metrics = string(text)
			}
		})
	}
	asked.Wait()
	return out, nil
}
