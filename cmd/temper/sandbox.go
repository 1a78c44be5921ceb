package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/supervise"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/node"
	"temper/sandbox/server"
)

func sandboxCommand() *cobra.Command {
	cfg := node.Config{Build: buildinfo.Line()}
	cmd := &cobra.Command{Use: "sandbox", Short: "Serve isolated Python execution", Args: cobra.NoArgs}
	p := config.DefaultProcess()
	serverFlags(cmd, &cfg.Server, p.SandboxAddress)
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", p.Python, "interpreter (TEMPER_PYTHON)")
	f.IntVar(&cfg.Zygotes, "zygotes", 0, "warm interpreters; 0 = one a core")
	f.IntVar(&cfg.Slots, "slots", 0, "programs running at a time; 0 = a multiple of the cores")
	f.IntVar(&cfg.Queue, "queue", 0, "programs waiting; 0 = a multiple of the slots")
	f.IntVar(&cfg.Sessions, "sessions", 0, "sessions with an interpreter at a time; 0 = a multiple of the cores")
	f.StringSliceVar(&cfg.Require, "require", nil, "isolation layers without which to refuse to start; all = every layer")
	f.Var((*byteSize)(&cfg.Memory), "memory", "bound of all programs together, such as 24GiB; 0 = three quarters of what there is")
	f.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how long calls may go on after SIGTERM")
	var j joining
	f.StringVar(&j.gateway, "join", "", "URL of a gateway that this node serves")
	f.StringVar(&j.advertise, "advertise", "", "host:port at which that gateway reaches this node; the address of --listen by default")
	debug := f.Bool("debug", false, "also log some of the calls, never their code or output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := errors.Join(cli.FindPython(cfg.Python), checkSandboxListen(cfg.Server.Listen), cfg.Server.Check(), checkSizes(&cfg), j.check(cfg.Server.Listen))
		if err != nil {
			return cli.Usage(err)
		}
		return serveSandbox(cmd, cfg, j, sandboxLogger("sandbox", *debug))
	}
	return cmd
}

// serveSandbox runs a node and keeps it listed with its gateway while it takes
// calls; either ends the other.
func serveSandbox(cmd *cobra.Command, cfg node.Config, j joining, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(cmd.Context())
	cfg.OnReady = func(ready node.Ready) {
		printReady(cmd, log, ready)
		if j.gateway != "" {
			g.Go(func() error { return gateway.Join(ctx, j.gateway, j.address(ready), cfg.Server.Token, log) })
		}
	}
	g.Go(func() error { return node.Serve(ctx, cfg, log) })
	return g.Wait()
}

// joining says which gateway a node serves, and where that finds it.
type joining struct{ gateway, advertise string }

// check finds what is wrong before the node is started.
func (j joining) check(listen string) error {
	if j.gateway == "" {
		if j.advertise != "" {
			return errors.New("--advertise is for a gateway: name it with --join")
		}
		return nil
	}
	var wrong []error
	if err := gateway.CheckNodes([]string{j.gateway}); err != nil {
		wrong = append(wrong, fmt.Errorf("--join: %w", err))
	}
	if j.advertise != "" {
		if host, port, err := net.SplitHostPort(j.advertise); err != nil || host == "" || port == "" {
			wrong = append(wrong, fmt.Errorf("--advertise: is %q, want host:port", j.advertise))
		}
		return errors.Join(wrong...)
	}
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		wrong = append(wrong, fmt.Errorf("--advertise is missing: %s is no address that a gateway can call", listen))
	}
	return errors.Join(wrong...)
}

// address is where the gateway reaches the node.
func (j joining) address(ready node.Ready) string {
	switch {
	case j.advertise == "":
		return ready.URL
	case strings.HasPrefix(ready.URL, "https://"):
		return "https://" + j.advertise
	default:
		return j.advertise
	}
}

// serverFlags adds what a node and a gateway have in common. The token comes from
// the environment: every user of a machine sees the flags of a process.
func serverFlags(cmd *cobra.Command, cfg *server.Config, listen string) {
	cfg.Token = os.Getenv(sandboxTokenKey)
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", listen, "host:port or unix:/path")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file of its private key")
	f.StringVar(&cfg.TLS.ClientCA, "tls-client-ca", "", "PEM file of the authorities of which clients need a certificate")
	f.BoolVar(&cfg.Insecure, "insecure", false, "serve other machines without a token ("+sandboxTokenKey+")")
}

// sandboxTokenKey names the bearer token of sandbox nodes, gateways and their clients.
const sandboxTokenKey = "TEMPER_SANDBOX_TOKEN"

// byteSize is a flag for an amount of memory.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }

// Set implements pflag.Value: a number with a binary unit or none.
func (b *byteSize) Set(text string) error {
	number, shift := text, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return errors.New("want bytes, or a number of KiB, MiB, GiB or TiB")
	}
	*b = byteSize(n << shift)
	return nil
}

// Files with which clients of the sandbox speak TLS, where it does not have a
// certificate of the machine's authorities.
const (
	sandboxCAKey         = "TEMPER_SANDBOX_TLS_CA"
	sandboxClientCertKey = "TEMPER_SANDBOX_TLS_CERT"
	sandboxClientKeyKey  = "TEMPER_SANDBOX_TLS_KEY"
)

// sandboxOptions is how the environment says that clients reach the sandbox.
func sandboxOptions() (httpapi.Options, error) {
	config, err := server.ClientTLS(os.Getenv(sandboxCAKey), os.Getenv(sandboxClientCertKey), os.Getenv(sandboxClientKeyKey))
	if err != nil {
		return httpapi.Options{}, cli.Usage(err)
	}
	return httpapi.Options{Token: os.Getenv(sandboxTokenKey), TLS: config}, nil
}

// checkSizes finds sizes of a node below zero.
func checkSizes(cfg *node.Config) error {
	var wrong []error
	for _, size := range []struct {
		flag  string
		value int64
	}{
		{"zygotes", int64(cfg.Zygotes)}, {"slots", int64(cfg.Slots)}, {"queue", int64(cfg.Queue)},
		{"sessions", int64(cfg.Sessions)}, {"drain", int64(cfg.Drain)},
	} {
		if size.value < 0 {
			wrong = append(wrong, fmt.Errorf("--%s is below zero", size.flag))
		}
	}
	return errors.Join(wrong...)
}

// sandboxLogger is cli.NewLogger, or with debug a log of everything for machines.
func sandboxLogger(role string, debug bool) *slog.Logger {
	if !debug {
		return cli.NewLogger(role)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", role)
}

func checkSandboxListen(addr string) error {
	if _, _, err := net.SplitHostPort(addr); strings.HasPrefix(addr, httpapi.UnixPrefix) || err != nil {
		return nil // a socket, or told with more by the check of the address
	}
	if err := supervise.CheckListen(addr); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// printReady prints the one line that a supervisor or a script waits for.
func printReady(cmd *cobra.Command, log *slog.Logger, ready node.Ready) {
	layers := map[string]string{}
	for _, l := range ready.Report.Layers {
		layers[l.Name] = layerState(l)
	}
	err := server.WriteReady(cmd.OutOrStdout(), ready.Address, map[string]any{
		"url": ready.URL, "python": ready.Report.Python, "layers": layers,
	})
	if err != nil {
		log.Error("ready line is not written", "err", err)
	}
}

func layerState(l jail.Layer) string {
	if l.On {
		return "on"
	}
	return "off: " + l.Reason
}
