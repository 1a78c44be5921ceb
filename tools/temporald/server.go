package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

const (
	startTimeout = 60 * time.Second
	clusterName  = "active"
)

// listener is a port that a flag asks for.
type listener struct {
	flag string
	port int
}

func (o options) listeners() []listener {
	ls := []listener{{"port", o.port}}
	if o.uiPort != 0 {
		ls = append(ls, listener{"ui-port", o.uiPort})
	}
	if o.httpPort != 0 {
		ls = append(ls, listener{"http-port", o.httpPort})
	}
	return ls
}

// reach is the address under which this machine reaches the listener.
func (o options) reach(port int) string {
	ip := net.ParseIP(o.ip)
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(port))
}

func (o options) frontend() string { return o.reach(o.port) }

func (o options) uiURL() string {
	if o.uiPort == 0 {
		return ""
	}
	return "http://" + o.reach(o.uiPort)
}

func (o options) httpURL() string {
	if o.httpPort == 0 {
		return ""
	}
	return "http://" + o.reach(o.httpPort)
}

// checkPorts names the first flag whose port is taken.
func (o options) checkPorts() error {
	for _, l := range o.listeners() {
		addr := net.JoinHostPort(o.ip, strconv.Itoa(l.port))
		ln, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is in use by another process: choose another port with --%s", addr, l.flag)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", l.flag, err)
		}
		if err := ln.Close(); err != nil {
			return err
		}
	}
	return nil
}

// freePorts reserves n distinct local ports for the services that talk only to each other.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = ln.Close() }() // only probed, nothing was accepted
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// server is Temporal with what stands before it for browsers.
type server struct {
	temporal temporal.Server
	fronts   []*front
}

func startServer(ctx context.Context, o options) (*server, error) {
	if err := o.checkPorts(); err != nil {
		return nil, err
	}
	store := o.storage()
	if err := store.prepare(ctx, o); err != nil {
		return nil, err
	}
	ports, err := freePorts(1 + len(inside))
	if err != nil {
		return nil, err
	}
	inner := newInnerAPI(o, ports[0])
	at, err := placesOf(o, ports[1:], inner)
	if err != nil {
		return nil, err
	}
	ts, err := newTemporal(o, store.persistence(), inner, at)
	if err != nil {
		return nil, err
	}
	if err := ts.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	s := &server{temporal: ts}
	if s.fronts, err = openFronts(o, inner); err != nil {
		return nil, errors.Join(err, ts.Stop())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := errors.Join(configureNamespace(ctx, o), waitUI(ctx, o)); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// newTemporal builds the four services of one cluster.
func newTemporal(o options, store config.Persistence, inner innerAPI, p places) (temporal.Server, error) {
	conf := &config.Config{
		Global:      config.Global{Membership: p.membership},
		Persistence: store,
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled: true, InitialFailoverVersion: 1, RPCAddress: o.frontend(),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            p.services,
		Archival: config.Archival{
			History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		PublicClient: config.PublicClient{HostPort: o.frontend()},
	}
	return temporal.NewServer(append(p.hosts,
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(log.NewZapLogger(log.BuildZapLogger(log.Config{Level: o.logLevel}))),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithDynamicConfigClient(settings(inner)),
	)...)
}

// taskTimeout is that of workflows whose client asks for none: a workflow task
// whose worker died waits so long, at most, and stock is 10 s.
const taskTimeout = 3 * time.Second

// settings are the departures from stock behaviour. With one shard, the stock
// 20 polls per second cost 50 ms at every hop; a second task-queue partition
// only adds hops on one machine.
func settings(inner innerAPI) dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.WorkflowPauseEnabled.Key():                true,
		dynamicconfig.TransferProcessorMaxPollRPS.Key():         2000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():            2000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():       2000,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():        8096,
		dynamicconfig.DefaultWorkflowTaskTimeout.Key():          taskTimeout,
		dynamicconfig.FrontendHTTPAllowedHosts.Key():            []string{inner.host},
	}
}

func (s *server) stop() error {
	return errors.Join(closeFronts(s.fronts), s.temporal.Stop())
}

// poll calls f until it succeeds and returns its last error when ctx ends first.
func poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
