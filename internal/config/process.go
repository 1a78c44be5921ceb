package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Process is where the parts of a service are. It never influences results and
// is not stored with a run.
type Process struct {
	// Home holds the store, the Temporal database and the logs.
	Home string
	// Store is the URL of the store, "" for the files below Home; see StorePlace.
	Store string
	// Python is the interpreter that the sandbox runs.
	Python string
	// TemporalAddress is host:port of the Temporal frontend.
	TemporalAddress string
	// Namespace of the Temporal server.
	Namespace string
	// UIAddress is host:port of the Temporal web UI, "" when unknown.
	UIAddress string
	// SandboxAddress is host:port of the sandbox node.
	SandboxAddress string
}

// DefaultProcess reads the environment over the embedded defaults.
func DefaultProcess() Process {
	return Process{
		Home:            env("TEMPER_HOME", "temper-data"),
		Store:           env("TEMPER_STORE", ""),
		Python:          env("TEMPER_PYTHON", "python3"),
		TemporalAddress: env("TEMPORAL_ADDRESS", "127.0.0.1:7233"),
		Namespace:       env("TEMPORAL_NAMESPACE", "default"),
		UIAddress:       env("TEMPER_UI_ADDRESS", "127.0.0.1:8233"),
		SandboxAddress:  env("TEMPER_SANDBOX_ADDRESS", "127.0.0.1:8765"),
	}
}

func env(key, fallback string) string {
	if v := os.Getenv(key); v != "" {
		return v
	}
	return fallback
}

// Validate reports what is wrong with the addresses and makes Home absolute.
func (p *Process) Validate() error {
	var out Problems
	for _, a := range []struct{ name, addr string }{
		{"temporal address (TEMPORAL_ADDRESS)", p.TemporalAddress},
		{"web UI address (TEMPER_UI_ADDRESS)", p.UIAddress},
		{"sandbox address (TEMPER_SANDBOX_ADDRESS)", p.SandboxAddress},
	} {
		if _, port, err := net.SplitHostPort(a.addr); a.addr != "" && (err != nil || port == "") {
			out = append(out, Problem{Path: a.name, Msg: fmt.Sprintf("is %q, want host:port", a.addr)})
		}
	}
	if _, err := p.StorePlace(); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			out = append(out, Problem{Path: "store (TEMPER_STORE)", Msg: line})
		}
	}
	home, err := filepath.Abs(p.Home)
	if err != nil {
		out = append(out, Problem{Path: "home (TEMPER_HOME)", Msg: err.Error()})
	}
	p.Home = home
	if len(out) > 0 {
		return out
	}
	return nil
}

// StorePlace is where the store is: what Store names, or a folder below Home.
func (p Process) StorePlace() (StorePlace, error) {
	if p.Store == "" {
		return StorePlace{Kind: StoreFile, Dir: filepath.Join(p.Home, "store")}, nil
	}
	place, err := ParseStore(p.Store)
	if place.Kind == StoreS3D {
		place.Account = filepath.Join(p.S3Dir(), "account")
	}
	return place, err
}

// S3Dir is the folder of the S3 server that `temper up` starts: account and data.
func (p Process) S3Dir() string { return filepath.Join(p.Home, "s3") }

// LogDir is the folder of the logs of all roles.
func (p Process) LogDir() string { return filepath.Join(p.Home, "logs") }

// TemporalDB is the SQLite file of the embedded Temporal server.
func (p Process) TemporalDB() string { return filepath.Join(p.Home, "temporal.db") }
