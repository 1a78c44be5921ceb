package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/internal/run"
	"temper/internal/service"
	"temper/internal/service/runclient"
	"temper/sandbox/server"
	"temper/ui"
	"temper/workers"
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
	store, err := workers.OpenStore(ctx, p)
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
		s := runclient.NewSteerer(p, store)
		defer s.Close()
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

// sayDashboard prints the address of the dashboard of a started service. It contains the
// token, which the page removes from the address; the token's owner may steer runs.
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
