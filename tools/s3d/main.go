// Command s3d is an S3 server in one process, on one folder. It owns the
// settings under which the tests and a single machine have a real S3 API; it
// knows nothing of what is stored.
//
// Invariant: once the ready line is on stdout, the S3 API answers and the
// bucket exists; a write that was answered is on the disk.
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
	"regexp"
	"syscall"
	"time"
)

// The variables that hold the one account of the server.
const (
	accessKeyVariable = "AWS_ACCESS_KEY_ID"
	secretKeyVariable = "AWS_SECRET_ACCESS_KEY"
)

// usageError is a mistake in the command line: exit status 2 instead of 1.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

// options are the command line and the account.
type options struct {
	dir            string
	listen         string
	bucket         string
	region         string
	tls            bool
	cert, key      string // files of TLS
	versions       bool
	nosync         bool
	exitWithParent bool
	access, secret string
}

// readyLine is what stdout gets, once, when the server can be used.
type readyLine struct {
	Ready    bool   `json:"ready"`
	Endpoint string `json:"endpoint"` // URL
	Address  string `json:"address"`  // host:port
	Bucket   string `json:"bucket"`
	Region   string `json:"region"`
	CA       string `json:"ca,omitempty"` // certificate file to trust, with -tls
	PID      int    `json:"pid"`
	StartMS  int64  `json:"start_ms"`
}

func main() {
	// The gateway prints to stdout, which belongs to the ready line.
	stdout := os.Stdout
	os.Stdout = os.Stderr
	err := run(os.Args[1:], stdout)
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "s3d:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "s3d:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{access: os.Getenv(accessKeyVariable), secret: os.Getenv(secretKeyVariable)}
	fs := flag.NewFlagSet("s3d", flag.ContinueOnError)
	fs.StringVar(&o.dir, "dir", "s3-data", "folder of the buckets, created when absent")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:9000", "host:port of the S3 API; port 0 = a free one")
	fs.StringVar(&o.bucket, "bucket", "temper", "bucket, created when absent")
	fs.StringVar(&o.region, "region", "us-east-1", "region that requests are signed for")
	fs.BoolVar(&o.tls, "tls", false, "serve HTTPS with a certificate of its own, which the ready line names")
	fs.StringVar(&o.cert, "tls-cert", "", "serve HTTPS with the certificate in this PEM file")
	fs.StringVar(&o.key, "tls-key", "", "PEM file of its private key")
	fs.BoolVar(&o.versions, "versions", false, "let buckets keep versions")
	fs.BoolVar(&o.nosync, "no-sync", false, "answer writes before they are on the disk (for measurements)")
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
	return o, o.validate(fs.Args())
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	if o.access == "" || o.secret == "" {
		return usageError{fmt.Sprintf("set %s and %s: they become the server's account", accessKeyVariable, secretKeyVariable)}
	}
	if host, _, err := net.SplitHostPort(o.listen); err != nil || net.ParseIP(host) == nil {
		return usageError{fmt.Sprintf("--listen %q is not IP:port", o.listen)}
	}
	if (o.cert == "") != (o.key == "") || o.tls && o.cert != "" {
		return usageError{"want --tls, or --tls-cert and --tls-key, or none of them"}
	}
	if !bucketName.MatchString(o.bucket) {
		return usageError{fmt.Sprintf("--bucket %q: want 3 to 63 lower-case letters, digits and hyphens", o.bucket)}
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
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	s, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	line, err := json.Marshal(readyLine{
		Ready: true, Endpoint: s.endpoint(), Address: s.addr, Bucket: o.bucket, Region: o.region,
		CA: s.cert, PID: os.Getpid(), StartMS: time.Since(start).Milliseconds(),
	})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", line)
	}
	if err == nil {
		err = s.wait(ctx)
	}
	stop() // a second signal kills at once
	return err
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
