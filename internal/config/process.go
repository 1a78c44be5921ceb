package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// Process is where the parts of a service are. It never influences results and
// is never stored with a run.
type Process struct {
	// Home is the folder of the store, the Temporal database and the logs.
	Home string `env:"TEMPER_HOME" default:"temper-data"`
	// Store is the URL of the store; see stores.md. Empty means files below the home folder.
	Store string `env:"TEMPER_STORE"`
	// Python is the interpreter that the sandbox runs.
	Python string `env:"TEMPER_PYTHON" default:"python3"`
	// TemporalAddress is host:port of the Temporal frontend.
	TemporalAddress string `env:"TEMPORAL_ADDRESS" default:"127.0.0.1:7233"`
	// Namespace is the namespace of the Temporal server.
	Namespace string `env:"TEMPORAL_NAMESPACE" default:"default"`
	// UIAddress is host:port of the Temporal web UI.
	UIAddress string `env:"TEMPER_UI_ADDRESS" default:"127.0.0.1:8233"`
	// SandboxAddress is host:port of the sandbox node.
	SandboxAddress string `env:"TEMPER_SANDBOX_ADDRESS" default:"127.0.0.1:8765"`
	// Webhook is the URL that gets the troubles of runs, empty for none; see the section
	// watch. Such a URL is often a secret, so it has no flag, which would show in the list of
	// processes, and no key in the configuration, which is stored.
	Webhook Secret `env:"TEMPER_WATCH_WEBHOOK"`
}

// DefaultUI is the default address of the web UI of `temper up`.
const DefaultUI = "127.0.0.1:8233"

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

// DefaultProcess reads the environment over the defaults.
func DefaultProcess() Process {
	var p Process
	v := reflect.ValueOf(&p).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		v.Field(i).SetString(cmp.Or(os.Getenv(tag.Get("env")), tag.Get("default")))
	}
	return p
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
