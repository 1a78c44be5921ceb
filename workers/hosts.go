package workers

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/sandbox/httpapi"
	"temper/sandbox/server"
	"temper/trainer/device"
	"temper/trainer/hosts"
	"temper/trainer/passes"
)

// HostTokenKey is the variable of the environment with the token that a trainer asks
// its hosts for.
const HostTokenKey = "TEMPER_MEMBER_TOKEN" //nolint:gosec // a name

// PeerTLS names the PEM files with which a trainer and its hosts know each other: both
// show a certificate, and both ask for one that the authorities have signed.
type PeerTLS struct{ Cert, Key, CA string }

func (f PeerTLS) none() bool { return f == PeerTLS{} }

// check refuses a part of the files.
func (f PeerTLS) check(flag string) error {
	if !f.none() && (f.Cert == "" || f.Key == "" || f.CA == "") {
		return fmt.Errorf("--%[1]stls-cert, --%[1]stls-key and --%[1]stls-ca belong together: one is missing", flag)
	}
	return nil
}

// server asks every host for a certificate, and speaks nothing older than TLS 1.3: both ends are ours.
func (f PeerTLS) server(log *slog.Logger) (*tls.Config, error) {
	config, err := server.TLSFiles{Cert: f.Cert, Key: f.Key, ClientCA: f.CA}.Server(log)
	if err != nil {
		return nil, err
	}
	newest := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := newest(hello)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.MinVersion = tls.VersionTLS13
		return c, nil
	}
	return config, nil
}

// CheckHosts refuses an address that other machines can reach without TLS, or that is no address.
func CheckHosts(address string, files PeerTLS) error {
	if err := files.check("members-"); err != nil {
		return err
	}
	open, err := checkAddress(address, files)
	if err != nil {
		return fmt.Errorf("--members %s: %w", address, err)
	}
	if open {
		return fmt.Errorf("--members %s: other hosts can reach it: name --members-tls-cert, --members-tls-key and --members-tls-ca", address)
	}
	return nil
}

// checkAddress refuses an address that is none, or one that has no use for TLS. open
// says that others can read or change what goes over it.
func checkAddress(address string, files PeerTLS) (open bool, err error) {
	network, at := splitAddress(address)
	if network == "unix" {
		if at == "" || !files.none() {
			return false, errors.New("want unix:/path, without files of TLS")
		}
		return false, nil
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false, errors.New("want host:port or unix:/path")
	}
	ip := net.ParseIP(host)
	return files.none() && host != "localhost" && (ip == nil || !ip.IsLoopback()), nil
}

// splitAddress is the network and the address of host:port or unix:/path.
func splitAddress(address string) (network, at string) {
	if path, ok := strings.CutPrefix(address, httpapi.UnixPrefix); ok {
		return "unix", path
	}
	return "tcp", address
}

// identityOfHost names what decides the bits of this process. The build is the bytes of the
// program: two of one revision may have been built in different ways.
func identityOfHost(name, backend string) (hosts.Identity, error) {
	path, err := os.Executable()
	if err != nil {
		return hosts.Identity{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return hosts.Identity{}, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return hosts.Identity{}, fmt.Errorf("read %s: %w", path, err)
	}
	return hosts.Identity{
		Name: name, Build: fmt.Sprintf("temper %s (%s)", buildinfo.Build(), hex.EncodeToString(sum.Sum(nil))[:12]),
		Backend: backend, Lanes: passes.NumAssistantLanes(backend),
	}, nil
}

// hubOf makes the hub of a trainer; nil where it takes no hosts.
func hubOf(o TrainerOptions, v *Vitals) (*hosts.Hub, net.Listener, error) {
	if o.Hosts == "" {
		return nil, nil, nil
	}
	who, err := identityOfHost("trainer", o.Backend)
	if err != nil {
		return nil, nil, err
	}
	l, err := listenHosts(o.Hosts)
	if err != nil {
		return nil, nil, fmt.Errorf("--members %s: %w", o.Hosts, err)
	}
	if !o.HostsTLS.none() {
		config, err := o.HostsTLS.server(o.Log)
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, config)
	}
	hub := hosts.NewHub(hosts.Config{Identity: who, Token: os.Getenv(HostTokenKey), Log: o.Log})
	v.Metrics.MustRegister(hubMetrics{hub})
	o.Log.Info("hosts may join", "address", l.Addr().String(), "build", who.Build)
	return hub, l, nil
}

func listenHosts(address string) (net.Listener, error) {
	network, at := splitAddress(address)
	if network == "unix" {
		return server.ListenUnix(at)
	}
	return net.Listen(network, at)
}

// HostOptions are the settings of a host.
type HostOptions struct {
	// Trainer is host:port or unix:/path where a trainer takes hosts.
	Trainer string
	TLS     PeerTLS
	Name    string
	Backend string
	Log     *slog.Logger
}

// Check finds what is wrong before a connection is made.
func (o HostOptions) Check() error {
	errs := []error{o.TLS.check("")}
	switch open, err := checkAddress(o.Trainer, o.TLS); {
	case err != nil:
		errs = append(errs, fmt.Errorf("--trainer %q: %w, as in temper role trainer --members", o.Trainer, err))
	case open:
		errs = append(errs, fmt.Errorf("--trainer %s: the token and the weights would go over the network in clear: name --tls-cert, --tls-key and --tls-ca", o.Trainer))
	}
	if _, err := server.ClientTLS(o.TLS.CA, o.TLS.Cert, o.TLS.Key); err != nil {
		errs = append(errs, err)
	}
	if err := device.Check(o.Backend); err != nil {
		errs = append(errs, fmt.Errorf("--backend: %w", err))
	}
	return errors.Join(errs...)
}

// Pauses between attempts to join.
const (
	rejoinPause  = 250 * time.Millisecond
	refusedPause = 5 * time.Second
)

// Host makes passes for the trainer of another process.
func Host(o HostOptions) Role {
	return Role{
		Row: role.Of(role.Host),
		Run: func(ctx context.Context, v *Vitals) error { return serveHost(ctx, o, v) },
	}
}

func serveHost(ctx context.Context, o HostOptions, v *Vitals) error {
	if err := o.Check(); err != nil {
		return err
	}
	who, err := identityOfHost(o.Name, o.Backend)
	if err != nil {
		return err
	}
	var state atomic.Pointer[string] // why it has no trainer; nil while it has one
	away := "not joined yet"
	state.Store(&away)
	v.Need(string(role.NeedDevice), func(context.Context) error { return device.Check(o.Backend) })
	v.Need(string(role.NeedTrainer), func(context.Context) error {
		if why := state.Load(); why != nil {
			return fmt.Errorf("trainer %s: %s", o.Trainer, *why)
		}
		return nil
	})
	o.Log.Info("host starts", "build", who.Build, "backend", o.Backend, "lanes", who.Lanes, "trainer", o.Trainer)
	m := &hosts.Host{Identity: who, Token: os.Getenv(HostTokenKey), Log: o.Log, OnJoin: func(rank int) {
		state.Store(nil)
		o.Log.Info("host has joined", "trainer", o.Trainer, "rank", rank)
	}}
	said := ""
	for ctx.Err() == nil {
		err := o.join(ctx, m)
		if ctx.Err() != nil {
			break
		}
		why, joined := err.Error(), state.Load() == nil
		state.Store(&why)
		if why != said { // once, and not at each attempt
			o.Log.Warn("host has no trainer", "trainer", o.Trainer, "err", err)
			said = why
		}
		pause := rejoinPause
		if dial := (*net.OpError)(nil); !joined && (!errors.As(err, &dial) || dial.Op != "dial") {
			pause = refusedPause // there is a trainer, and it refuses this host
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// join works for the trainer until one of the two is gone.
func (o HostOptions) join(ctx context.Context, m *hosts.Host) error {
	network, at := splitAddress(o.Trainer)
	dialer := &net.Dialer{Timeout: hosts.DefaultPatience}
	c, err := dialer.DialContext(ctx, network, at)
	if err != nil {
		return err
	}
	if !o.TLS.none() {
		config, err := server.ClientTLS(o.TLS.CA, o.TLS.Cert, o.TLS.Key)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		config.ServerName, _, _ = net.SplitHostPort(at)
		c = tls.Client(c, config)
	}
	return m.Serve(ctx, c)
}

// hubMetrics shows what a hub counts.
type hubMetrics struct{ hub *hosts.Hub }

var (
	hostCount   = prometheus.NewDesc("rl_trainer_members", "Hosts of the trainer that are connected.", nil, nil)
	hostPasses  = prometheus.NewDesc("rl_trainer_member_passes_total", "Passes over microbatches that hosts were given: made, or lost with the host.", []string{"end"}, nil)
	hostBytes   = prometheus.NewDesc("rl_trainer_member_bytes_total", "Bytes between the trainer and its hosts.", []string{"direction"}, nil)
	hostRefused = prometheus.NewDesc("rl_trainer_members_refused_total", "Attempts to join that were refused.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m hubMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hostCount, hostPasses, hostBytes, hostRefused} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m hubMetrics) Collect(to chan<- prometheus.Metric) {
	c := m.hub.Counts()
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	to <- prometheus.MustNewConstMetric(hostCount, prometheus.GaugeValue, float64(c.Hosts))
	counter(hostPasses, c.Passes, "made")
	counter(hostPasses, c.Redone, "lost")
	counter(hostBytes, c.Sent, "sent")
	counter(hostBytes, c.Received, "received")
	counter(hostRefused, c.Refused)
}
