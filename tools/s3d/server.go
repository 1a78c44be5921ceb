package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

const (
	// healthPath answers without a signature; it hides a bucket of that name.
	healthPath = "/healthz"
	// maxCopy is what a server-side copy may move, S3's own limit.
	maxCopy = 5 << 30
	// startTimeout is how long the API may take to answer.
	startTimeout = 30 * time.Second
	// stopTimeout is how long requests under way may take at the end.
	stopTimeout = 2 * time.Second
	// maxConnections and maxRequests are far above what one machine's workers open.
	maxConnections, maxRequests = 4096, 2048
	maxParts                    = 10_000
)

// server is the gateway that runs in this process: one at most, because it
// changes the working directory and keeps globals.
type server struct {
	addr string // host:port
	cert string // file of the certificate, "" without TLS
	lock *os.File
	done chan error
}

// startServer serves o.dir until ctx is done.
func startServer(ctx context.Context, o options) (*server, error) {
	buckets := filepath.Join(o.dir, "buckets")
	if err := os.MkdirAll(filepath.Join(buckets, o.bucket), 0o755); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	lock, err := lockDir(ctx, o.dir)
	if err != nil {
		return nil, err
	}
	be, err := openBackend(o, buckets)
	if err != nil {
		return nil, err
	}
	s := &server{lock: lock, done: make(chan error, 1)}
	if s.addr, err = freeAddress(o.listen); err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	cfg := &embedgw.Config{
		RootUserAccess: o.access, RootUserSecret: o.secret, Region: o.region, Ports: []string{s.addr},
		MaxConnections: maxConnections, MaxRequests: maxRequests, MultipartMaxParts: maxParts,
		Quiet: true, KeepAlive: true, DisableACLs: true, HealthPath: healthPath,
	}
	client := http.DefaultClient
	cfg.CertFile, cfg.KeyFile = o.cert, o.key
	if o.tls {
		if cfg.CertFile, cfg.KeyFile, err = certificate(o.dir, s.addr); err != nil {
			return nil, err
		}
	}
	if cfg.CertFile != "" {
		s.cert = cfg.CertFile
		if client, err = trusting(s.cert); err != nil {
			return nil, err
		}
	}
	go func() { s.done <- embedgw.RunVersityGW(ctx, be, cfg) }()
	return s, s.ready(ctx, client)
}

// openBackend opens the folder of the buckets. File systems without extended
// attributes get a folder of metadata beside it.
func openBackend(o options, buckets string) (backend.Backend, error) {
	opts := posix.PosixOpts{CopyObjectThreshold: maxCopy}
	if o.versions {
		opts.VersioningDir = filepath.Join(o.dir, "versions")
		if err := os.MkdirAll(opts.VersioningDir, 0o755); err != nil {
			return nil, err
		}
	}
	var store meta.MetadataStorer = meta.XattrMeta{}
	if err := (meta.XattrMeta{}).Test(buckets); err != nil {
		opts.SideCarDir = filepath.Join(o.dir, "metadata")
		if err := os.MkdirAll(opts.SideCarDir, 0o755); err != nil {
			return nil, err
		}
		if store, err = meta.NewSideCar(opts.SideCarDir); err != nil {
			return nil, err
		}
	}
	be, err := posix.New(buckets, store, opts)
	if err != nil {
		return nil, err
	}
	if o.nosync {
		return be, nil
	}
	return &synced{Posix: be, dir: buckets}, nil
}

const (
	lockPatience = 5 * time.Second
	lockQuiet    = 500 * time.Millisecond // before a person is told
	lockPause    = 20 * time.Millisecond
)

// lockDir makes this process the only server on the folder until the file is closed. A
// server that was killed holds its lock for a moment longer: this one waits for that,
// and says so.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	said := false
	for began := time.Now(); ; time.Sleep(lockPause) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		past := time.Since(began)
		if !errors.Is(err, syscall.EWOULDBLOCK) || past > lockPatience || ctx.Err() != nil {
			break
		}
		if past > lockQuiet && !said {
			said = true
			fmt.Fprintf(os.Stderr, "s3d: waiting up to %s for another s3d to leave %s\n", lockPatience, dir)
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("--dir %s is in use by another s3d", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// freeAddress replaces port 0 with a port that is free now. A port that is
// taken is an error.
func freeAddress(listen string) (string, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *server) endpoint() string {
	if s.cert != "" {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// ready waits until the API answers.
func (s *server) ready(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoint()+healthPath, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close() // nothing is read
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.done:
			return errors.Join(errors.New("the gateway ended during its start"), err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", s.endpoint(), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// wait returns when the gateway has ended by itself, or soon after ctx is done:
// idle connections of clients would keep it open.
func (s *server) wait(ctx context.Context) error {
	defer s.lock.Close() //nolint:errcheck // nothing was written to it
	select {
	case err := <-s.done:
		if ctx.Err() == nil {
			return errors.Join(errors.New("the gateway ended by itself"), err)
		}
	case <-ctx.Done():
		select {
		case <-s.done: //nolint:errcheck // it was told to end
		case <-time.After(stopTimeout):
		}
	}
	return nil
}

// trusting is a client that trusts the certificate alone.
func trusting(cert string) (*http.Client, error) {
	pem, err := os.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}, nil
}
