package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"temper/internal/role"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/node"
	"temper/sandbox/server"
)

// Variables of the environment by which a process calls the sandbox. A token does not
// belong on a command line: every user of a machine sees it there.
const (
	// SandboxTokenKey is the bearer token of nodes, gateways and their clients.
	SandboxTokenKey = "TEMPER_SANDBOX_TOKEN" //nolint:gosec // a name
	// SandboxNodeTokenKey is the bearer token of nodes and gateways among themselves:
	// nodes join with it, and gateways call nodes with it.
	SandboxNodeTokenKey = "TEMPER_SANDBOX_NODE_TOKEN" //nolint:gosec // a name
	// Files with which clients speak TLS, where the sandbox has no certificate of the
	// machine's authorities.
	SandboxCAKey         = "TEMPER_SANDBOX_TLS_CA"
	SandboxClientCertKey = "TEMPER_SANDBOX_TLS_CERT"
	SandboxClientKeyKey  = "TEMPER_SANDBOX_TLS_KEY"
)

// SandboxClientOptions reads from the environment how to call the sandbox.
func SandboxClientOptions() (httpapi.Options, error) {
	config, err := server.ClientTLS(os.Getenv(SandboxCAKey), os.Getenv(SandboxClientCertKey), os.Getenv(SandboxClientKeyKey))
	if err != nil {
		return httpapi.Options{}, err
	}
	return httpapi.Options{Token: os.Getenv(SandboxTokenKey), TLS: config}, nil
}

// SandboxOptions configure a sandbox role.
type SandboxOptions struct {
	Node node.Config
	// Gateway is the URL of a gateway that the node serves; empty for none.
	Gateway string
	// Advertise is host:port at which that gateway reaches the node; empty is the
	// address where the node listens.
	Advertise string
	// NodeToken is the token with which the node joins, and with which the gateway calls
	// it; the token of Node.Server stays good for other callers.
	NodeToken string
	// GatewayTLS is how the node trusts an https gateway and shows itself to it; nil for the
	// authorities of the machine.
	GatewayTLS *tls.Config
	Log        *slog.Logger
}

// Sandbox runs isolated programs. It needs nothing but its machine, and answers for
// its health on the address where it takes calls.
func Sandbox(o SandboxOptions) Role {
	return Role{Row: role.Of(role.Sandbox), Run: func(ctx context.Context, _ *Vitals) error { return serveSandbox(ctx, o) }}
}

// serveSandbox runs a node and keeps it listed with its gateway while it takes
// calls. When one of them ends, so does the other.
func serveSandbox(ctx context.Context, o SandboxOptions) error {
	o.admitGateway()
	g, ctx := errgroup.WithContext(ctx)
	tell := o.Node.OnReady
	o.Node.OnReady = func(ready node.Ready) {
		if tell != nil {
			tell(ready)
		}
		if o.Gateway != "" {
			g.Go(func() error {
				return gateway.Join(ctx, o.Gateway, o.address(ready), o.NodeToken, o.GatewayTLS, o.Log)
			})
		}
	}
	g.Go(func() error { return node.Serve(ctx, o.Node, o.Log) })
	return g.Wait()
}

// admitGateway lets a gateway call with the token of nodes, beside the callers that
// have the node's own.
func (o *SandboxOptions) admitGateway() {
	s := &o.Node.Server
	switch {
	case o.NodeToken == "":
	case s.Token == "":
		s.Token = o.NodeToken
	default:
		both := []string{s.Token, o.NodeToken}
		s.Tokens = func(string) []string { return both }
	}
}

// Check finds what is wrong with the gateway and the address for it before the node
// is started.
func (o SandboxOptions) Check() error {
	if o.Gateway == "" {
		if o.Advertise != "" {
			return errors.New("--advertise is for a gateway: name it with --join")
		}
		return nil
	}
	var wrong []error
	if o.NodeToken == "" {
		wrong = append(wrong, fmt.Errorf("--join: %s is not set, and a gateway takes no nodes without it", SandboxNodeTokenKey))
	}
	if err := gateway.CheckNodes([]string{o.Gateway}); err != nil {
		wrong = append(wrong, fmt.Errorf("--join: %w", err))
	}
	if o.Advertise != "" {
		if host, port, err := net.SplitHostPort(o.Advertise); err != nil || host == "" || port == "" {
			wrong = append(wrong, fmt.Errorf("--advertise: is %q, want host:port", o.Advertise))
		}
		return errors.Join(wrong...)
	}
	host, _, err := net.SplitHostPort(o.Node.Server.Listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		wrong = append(wrong, fmt.Errorf("--advertise is missing: %s is no address that a gateway can call", o.Node.Server.Listen))
	}
	return errors.Join(wrong...)
}

// address is where the gateway reaches the node.
func (o SandboxOptions) address(ready node.Ready) string {
	switch {
	case o.Advertise == "":
		return ready.URL
	case strings.HasPrefix(ready.URL, "https://"):
		return "https://" + o.Advertise
	default:
		return o.Advertise
	}
}

// LocalSandbox is a node of this process, for the programs of one person: it listens on a
// socket that only this user can open.
type LocalSandbox struct {
	*httpapi.Client
	stop func()
	done chan error
	dir  string
}

// StartSandbox starts a LocalSandbox with the interpreter of that name, in which so many
// programs run side by side. The caller closes it.
func StartSandbox(ctx context.Context, python string, size int, log *slog.Logger) (*LocalSandbox, error) {
	dir, err := os.MkdirTemp("", "temper-sandbox-") // for this user alone
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &LocalSandbox{stop: stop, done: make(chan error, 1), dir: dir}
	ready := make(chan node.Ready, 1)
	cfg := node.Config{
		Server: server.Config{Listen: httpapi.UnixPrefix + filepath.Join(dir, "s")}, Python: python,
		Zygotes: 1, Slots: size, Sessions: size, OnReady: func(r node.Ready) { ready <- r },
	}
	go func() { s.done <- node.Serve(serving, cfg, log) }()
	select {
	case r := <-ready:
		s.Client, err = httpapi.NewClient(r.Address, httpapi.Options{})
		if err == nil {
			return s, nil
		}
		return nil, errors.Join(err, s.Close())
	case err := <-s.done:
		s.done <- nil
		return nil, errors.Join(err, s.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Close())
	}
}

// Close ends the node with all programs, and returns when none is alive.
func (s *LocalSandbox) Close() error {
	if s.Client != nil {
		s.Client.Close()
	}
	s.stop()
	return errors.Join(<-s.done, os.RemoveAll(s.dir))
}
