// Command temporald is a Temporal server with its web UI in one process, on one
// durable SQLite file, or one of several on databases of Postgres. It owns the settings under which a run is orchestrated on
// a single machine; it knows nothing of runs beyond their search attributes.
//
// Invariant: once the ready line is on stdout, the frontend answers, the
// namespace has its retention and its search attributes, and the UI is up.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.temporal.io/server/common/headers"
)

// usageError is a mistake in the command line: exit status 2 instead of 1.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

// options are the command line.
type options struct {
	db             string
	postgres       *postgres // nil: the file db
	ip             string
	port           int
	uiPort         int
	httpPort       int
	uiHosts        hostList
	namespace      string
	retention      time.Duration
	logLevel       string
	exitWithParent bool
}

// readyLine is what stdout gets, once, when the server can be used.
type readyLine struct {
	Ready     bool   `json:"ready"`
	Address   string `json:"address"`
	UI        string `json:"ui,omitempty"`
	HTTP      string `json:"http,omitempty"`
	Namespace string `json:"namespace"`
	DB        string `json:"db"`
	PID       int    `json:"pid"`
	Server    string `json:"server_version"`
	StartMS   int64  `json:"start_ms"`
}

func main() {
	err := run(os.Args[1:], os.Stdout)
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "temporald:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "temporald:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("temporald", flag.ContinueOnError)
	fs.StringVar(&o.db, "db", "temporal.db", "SQLite file, created when absent")
	dsn := fs.String("postgres", "", "Postgres in place of the file, as postgres://user@host:port/database; the password is in "+passwordKey)
	fs.StringVar(&o.ip, "ip", "127.0.0.1", "address to listen on; there is no authentication")
	fs.IntVar(&o.port, "port", 7233, "gRPC port")
	fs.IntVar(&o.uiPort, "ui-port", 8233, "web UI port; 0 = no UI")
	fs.IntVar(&o.httpPort, "http-port", 0, "HTTP API port; 0 = no HTTP API")
	fs.Var(&o.uiHosts, "ui-host", "further `host` under which browsers may use the UI and the HTTP API, beside loopback names; several with commas")
	fs.StringVar(&o.namespace, "namespace", "default", "namespace, created when absent")
	fs.DurationVar(&o.retention, "retention", 720*time.Hour, "how long closed workflows are kept")
	fs.StringVar(&o.logLevel, "log-level", "error", "debug, info, warn or error; logs go to stderr")
	fs.BoolVar(&o.exitWithParent, "exit-with-parent", false, "stop when the parent process is gone")
	fs.SetOutput(io.Discard)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(os.Stderr)
			fs.Usage()
			return o, err
		}
		return o, usageError{err.Error()}
	}
	if o.ip == "localhost" {
		o.ip = "127.0.0.1"
	}
	if *dsn != "" {
		var err error
		if o.postgres, err = parsePostgres(*dsn, os.Getenv(passwordKey)); err != nil {
			return o, err
		}
		fs.Visit(func(f *flag.Flag) {
			if f.Name == "db" {
				err = usageError{"--db and --postgres are two places for one database: leave one out"}
			}
		})
		if err != nil {
			return o, err
		}
	}
	return o, o.validate(fs.Args())
}

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	if net.ParseIP(o.ip) == nil {
		return usageError{fmt.Sprintf("--ip %q is not an IP address", o.ip)}
	}
	if o.namespace == "" || o.db == "" {
		return usageError{"--namespace and --db must not be empty"}
	}
	if o.postgres != nil && net.ParseIP(o.ip).IsUnspecified() {
		return usageError{fmt.Sprintf("--ip %s with --postgres: servers on one database find each other by it; want the address of this machine", o.ip)}
	}
	if o.retention < time.Hour {
		return usageError{fmt.Sprintf("--retention %v is below 1h", o.retention)}
	}
	switch o.logLevel {
	case "debug", "info", "warn", "error":
	default:
		return usageError{fmt.Sprintf("--log-level %q is not one of debug, info, warn, error", o.logLevel)}
	}
	seen := map[int]string{}
	for _, p := range o.listeners() {
		if p.port < 1 || p.port > 65535 {
			return usageError{fmt.Sprintf("--%s %d is not a port", p.flag, p.port)}
		}
		if other, dup := seen[p.port]; dup {
			return usageError{fmt.Sprintf("--%s and --%s are both %d", other, p.flag, p.port)}
		}
		seen[p.port] = p.flag
	}
	return nil
}

func run(args []string, stdout io.Writer) error {
	start := time.Now()
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if o.exitWithParent {
		var end func()
		ctx, end = withParent(ctx)
		defer end()
	}
	release, err := o.own(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	if o.postgres != nil {
		defer o.postgres.watch(ctx, watchEvery)()
	}
	line, err := json.Marshal(readyLine{
		Ready: true, Address: o.frontend(), UI: o.uiURL(), HTTP: o.httpURL(), Namespace: o.namespace,
		DB: o.storage().String(), PID: os.Getpid(), Server: headers.ServerVersion, StartMS: time.Since(start).Milliseconds(),
	})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", line)
	}
	if err == nil {
		<-ctx.Done()
	}
	stop() // a second signal kills at once
	return errors.Join(err, s.stop())
}

// own makes this process the owner of its file and returns what ends that. A
// database of Postgres has any number of servers.
func (o *options) own(ctx context.Context) (release func(), err error) {
	if o.postgres != nil {
		return func() {}, nil
	}
	if o.db, err = filepath.Abs(o.db); err != nil {
		return nil, err
	}
	return lockDatabase(ctx, o.db)
}

// withParent is ctx, cancelled as well when this process gets a new parent. The
// returned function ends the watch. Polling works whatever thread or process
// forked this one.
func withParent(ctx context.Context) (context.Context, func()) {
	parent := os.Getppid()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}
