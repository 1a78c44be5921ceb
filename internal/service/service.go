package service

import (
	"os"
	"time"

	"temper/internal/config"
	"temper/internal/proc"
)

// Options say what the service consists of.
type Options struct {
	// Embedded starts our own Temporal server.
	Embedded bool
	// Require lists the isolation layers without which to refuse to start.
	Require []string
	// UIHosts are further host names of the web UI, with commas.
	UIHosts string
	// RolloutWorkers is the number of processes that sample beside the trainer; with
	// none, the trainer samples.
	RolloutWorkers int
	// Trainers is the number of processes that train together: the trainer and its
	// members; 0 is 1.
	Trainers int
	// Backend and Mesh describe the trainer, and its rollouts if it samples; empty is the
	// Go backend.
	Backend, Mesh string
	// Dashboard is host:port of the dashboard; port 0 takes a free one, empty is none.
	Dashboard string
}

// TokenFile is the file below the home with the token of the dashboard.
const TokenFile = "ui.token"

// supervisedKey marks a process of the service.
const supervisedKey = "TEMPER_SUPERVISED"

// SupervisorPID is the process whose descendants make up the service: the
// supervisor that started this role, or this process itself.
func SupervisorPID() int {
	if os.Getenv(supervisedKey) != "" {
		return os.Getppid()
	}
	return os.Getpid()
}

// serverPatience is how long a role of the service waits for a server that is being
// restarted. A role that a user starts by hand fails at once if there is no server.
const serverPatience = time.Minute

// Patience is how long this process, as a role, waits for the Temporal server.
func Patience() time.Duration {
	if os.Getenv(supervisedKey) != "" {
		return serverPatience
	}
	return 0
}

// healthSocket is where a child of the service answers for its health: below the
// home, where no other user and no page of a browser can ask.
func healthSocket(p *config.Process, child string) string {
	return proc.UnixPrefix + socketDir(p) + "/" + child
}
