package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/singleflight"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/run"
	"temper/internal/service"
	"temper/internal/temporalclient"
	"temper/sandbox/server"
	"temper/ui"
	"temper/workflows"
)

// uiOptions are the flags of the dashboard.
type uiOptions struct {
	listen, auth, health, note string
	hosts                      []string
	insecure, readOnly         bool
}

// dashboardAddress is the default of --listen.
const dashboardAddress = "127.0.0.1:8234"

func (f *roleFlags) uiCommand() *cobra.Command {
	var o uiOptions
	cmd := &cobra.Command{
		Use: roleUI, Short: "Serve the dashboard of a store", Args: cobra.NoArgs,
		Long: `Serves the dashboard of a store: its runs with their curves, steps, groups and trajectories,
also of runs that have ended or crashed. Reading needs the store alone. Commands to runs need the
Temporal server and the token that is in ui.token below --home (or in ` + ui.TokenKey + `).`,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.hosts, "host", nil, "further host names under which browsers may open the dashboard; loopback names always may")
	flags.StringVar(&o.auth, "auth", "commands", "what needs the token: commands, or all")
	flags.BoolVar(&o.readOnly, "read-only", false, "give no commands and ask no Temporal server")
	flags.StringVar(&o.health, "health", "", "host:port or unix:/path of /healthz and /readyz; empty for none")
	flags.StringVar(&o.note, "address-file", "", "file that gets the address; port 0 takes the port that it names, where it is free")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.listen, o.insecure = f.address(dashboardAddress), f.insecure
		return serveUI(cmd.Context(), f.process, o, cmd.OutOrStdout())
	}
	return cmd
}

// check finds what is wrong with the flags.
func (o *uiOptions) check() error {
	if err := ui.CheckListen(o.listen, o.insecure); err != nil {
		return cli.Usagef("--listen: %w", err)
	}
	if o.auth != "commands" && o.auth != "all" {
		return cli.Usagef("--auth: is %q, want commands or all", o.auth)
	}
	if o.health == "" {
		return nil
	}
	if err := proc.CheckAddress(o.health, false); err != nil {
		return cli.Usagef("--health: %w", err)
	}
	return nil
}

func serveUI(ctx context.Context, p *config.Process, o uiOptions, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	store, err := openStore(ctx, p)
	if err != nil {
		return err
	}
	token, err := ui.Token(filepath.Join(p.Home, service.TokenFile))
	if err != nil {
		return err
	}
	log := cli.NewLogger(roleUI)
	cfg := ui.Config{
		Store: store, Token: token, ReadNeedsToken: o.auth == "all" || !ui.Loopback(o.listen), Hosts: o.hosts,
		TemporalUI: p.UIAddress, Namespace: p.Namespace, Build: buildinfo.Line(), Log: log, Now: time.Now,
	}
	if o.readOnly {
		cfg.TemporalUI = ""
	} else {
		s := &steerer{process: p, store: store}
		defer s.close()
		cfg.Steer, cfg.Place = s, s
		cfg.PutNotes = func(ctx context.Context, runID string, n run.Notes) error { return run.PutNotes(ctx, store, runID, n) }
	}
	dashboard, err := ui.New(cfg)
	if err != nil {
		return err
	}
	l, err := ui.Listen(ctx, o.listen, o.note)
	if err != nil {
		return err
	}
	state := proc.NewHealth(roleUI, "pages")
	if o.health != "" {
		h, err := proc.Listen(ctx, o.health, state.Handler(nil), log)
		if err != nil {
			return err
		}
		defer h.Close(ctx)
	}
	state.Serving("pages")
	if err := tellReady(out, l); err != nil {
		return err
	}
	return dashboard.Serve(ctx, l, log)
}

func tellReady(out io.Writer, l net.Listener) error {
	address := l.Addr().String()
	return server.WriteReady(out, address, map[string]any{"role": roleUI, "url": "http://" + address})
}

// steerer gives commands as temper run does. It connects when it is first asked, and
// again when that has failed.
type steerer struct {
	process *config.Process
	store   blob.Store

	dials singleflight.Group
	mu    sync.Mutex
	c     client.Client
}

// connectTime bounds the wait for a server: a page waits for the answer.
const connectTime = 2 * time.Second

// connected dials once for all who wait for it: a page asks for several things at a time, and
// they would wait one behind the other.
func (s *steerer) connected(ctx context.Context) (client.Client, error) {
	dialled := s.dials.DoChan("", func() (any, error) { return s.dial(context.WithoutCancel(ctx)) })
	select {
	case got := <-dialled:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(client.Client), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *steerer) dial(ctx context.Context) (client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		return s.c, nil
	}
	c, err := temporalclient.Dial(ctx, temporalclient.Config{
		Address: s.process.TemporalAddress, Namespace: s.process.Namespace, Logger: slog.New(slog.DiscardHandler), Timeout: connectTime,
	})
	if err != nil {
		return nil, err
	}
	s.c = c
	return c, nil
}

func (s *steerer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		s.c.Close()
	}
}

// Status implements ui.Steerer.
func (s *steerer) Status(ctx context.Context, runID string) (workflows.RunStatus, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return workflows.RunStatus{}, err
	}
	return workflows.Status(ctx, c, runID)
}

// Open implements ui.Steerer.
func (s *steerer) Open(ctx context.Context) ([]workflows.OpenRun, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return workflows.OpenRuns(ctx, c)
}

// Send implements ui.Steerer.
func (s *steerer) Send(ctx context.Context, runID, command string, arg workflows.Command) (string, error) {
	if command == ui.OrderFork || command == ui.OrderPin || command == ui.OrderUnpin {
		return s.order(ctx, runID, command, arg)
	}
	c, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	if command == workflows.CommandRestart && arg.RunID == "" {
		arg.RunID = successor(runID)
	}
	return (&steering{Command: arg}).give(ctx, c, s.process, command, runID)
}

// Processes implements ui.Place.
func (s *steerer) Processes(ctx context.Context) ([]service.Process, error) {
	return service.Processes(ctx, s.process)
}

// Schedules implements ui.Place.
func (s *steerer) Schedules(ctx context.Context) ([]temporalclient.View, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	found, err := workflows.Schedules(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []temporalclient.View
	for _, f := range found {
		v, err := temporalclient.DescribeWhole(ctx, s.store, f)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// sayDashboard prints where the dashboard of a started service is. Whoever has the
// token, which the page takes out of the address, may steer runs.
func sayDashboard(p *config.Process, line func(string)) error {
	address, err := service.DashboardAddress(p)
	if err != nil {
		return err
	}
	token, err := ui.Token(filepath.Join(p.Home, service.TokenFile))
	if err == nil {
		line(fmt.Sprintf("dashboard http://%s/#token=%s", address, token))
	}
	return err
}

var _ ui.Steerer = (*steerer)(nil)
