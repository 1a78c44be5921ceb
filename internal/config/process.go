package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is where the parts of a service are. It never influences results and
// is never stored with a run.
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
	// Webhook is the URL that gets the troubles of runs, "" for none; see Watch. Such a
	// URL is often a secret, so it comes from the environment alone: flags show in the
	// list of processes, and a Run is stored.
	Webhook Secret
}

// Secret is a text that no log, error or stored document shows. Its own type
// makes that the default; string(s) is the text.
type Secret string

// hidden stands in for a Secret.
const hidden = "[hidden]"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText implements encoding.TextMarshaler, which JSON, YAML and slog use.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DefaultProcess reads the environment over the embedded defaults.
func DefaultProcess() Process {
	return Process{
		Home:            fromEnv("TEMPER_HOME", "temper-data"),
		Store:           fromEnv("TEMPER_STORE", ""),
		Python:          fromEnv("TEMPER_PYTHON", "python3"),
		TemporalAddress: fromEnv("TEMPORAL_ADDRESS", "127.0.0.1:7233"),
		Namespace:       fromEnv("TEMPORAL_NAMESPACE", "default"),
		UIAddress:       fromEnv("TEMPER_UI_ADDRESS", "127.0.0.1:8233"),
		SandboxAddress:  fromEnv("TEMPER_SANDBOX_ADDRESS", "127.0.0.1:8765"),
		Webhook:         Secret(fromEnv("TEMPER_WATCH_WEBHOOK", "")),
	}
}

func fromEnv(key, fallback string) string {
	if v := os.Getenv(key); v != "" {
		return v
	}
	return fallback
}

// Validate reports every mistake in the addresses and makes Home absolute.
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
	if u, err := url.Parse(string(p.Webhook)); p.Webhook != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		// Without the value, and without err, which repeats it.
		out = append(out, Problem{Path: "webhook (TEMPER_WATCH_WEBHOOK)", Msg: "is no URL: want https://host/path or http://host/path"})
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
