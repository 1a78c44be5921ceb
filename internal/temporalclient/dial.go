package temporalclient

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	nspb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
)

// Config overrides what the environment says. The zero value overrides nothing.
type Config struct {
	// Address of the frontend, host:port.
	Address string
	// Namespace of the runs.
	Namespace string
	// Identity is shown by the server; empty = pid@host.
	Identity string
	// Logger takes the SDK's lines; nil = slog.Default.
	Logger *slog.Logger
	// Timeout bounds the first contact; 0 means 5 s.
	Timeout time.Duration
	// Metrics takes the counts of the SDK; nil discards them.
	Metrics client.MetricsHandler
}

const dialTimeout = 5 * time.Second

// Load merges the configuration file, the environment and the overrides. Its
// result names the address and the namespace that Dial uses.
func Load(cfg Config) (client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return client.Options{}, fmt.Errorf("temporal client settings: %w", err)
	}
	if cfg.Address != "" {
		options.HostPort = cfg.Address
	}
	if cfg.Namespace != "" {
		options.Namespace = cfg.Namespace
	}
	if options.HostPort == "" {
		options.HostPort = client.DefaultHostPort
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	options.Identity = cfg.Identity
	logger := cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	options.Logger = log.NewStructuredLogger(logger)
	options.MetricsHandler = cfg.Metrics
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(printableID))
	return options, nil
}

// Dial connects and checks that the server answers. The error is one line that
// names the address.
func Dial(ctx context.Context, cfg Config) (client.Client, error) {
	options, err := Load(cfg)
	if err != nil {
		return nil, err
	}
	timeout := cfg.Timeout
	if timeout == 0 {
		timeout = dialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, &UnreachableError{Address: options.HostPort, Err: err}
	}
	return c, nil
}

// uiKey is where a namespace says which web UI shows it.
const uiKey = "temper.ui"

// TellUI writes the address of the web UI into the namespace, for clients that know
// the server alone.
func TellUI(ctx context.Context, c client.Client, namespace, address string) error {
	_, err := c.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: namespace, UpdateInfo: &nspb.UpdateNamespaceInfo{Data: map[string]string{uiKey: address}},
	})
	if err != nil {
		return fmt.Errorf("name the web UI in namespace %s: %w", namespace, err)
	}
	return nil
}

// AskUI is the address of the web UI that TellUI has written. ok is false on a server
// that knows of none.
func AskUI(ctx context.Context, c client.Client, namespace string) (address string, ok bool) {
	found, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return "", false
	}
	address, ok = found.GetNamespaceInfo().GetData()[uiKey]
	return address, ok
}

// UnreachableError means that no Temporal server answered at an address.
type UnreachableError struct {
	Address string
	Err     error
}

// Error is one line for a person.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no Temporal server answers at %s (%s); start one or set TEMPORAL_ADDRESS", e.Address, cause(e.Err))
}

// Unwrap returns the transport's error.
func (e *UnreachableError) Unwrap() error { return e.Err }
