package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/service"
	"temper/internal/temporalclient"
	"temper/tools/bench/chaos"
	"temper/workers"
	"temper/workflows"
)

// chaosRun is the id of every run of the harness: each has a store of its own,
// and what they leave is compared key by key.
const chaosRun = "chaos"

// chaosHost is the real service, started as a person would start it, in a home and
// on ports of its own.
type chaosHost struct {
	process config.Process
	temper  string // path of the binary
	input   run.Input
	store   blob.Store
	log     *os.File
	points  []string
	members []chaos.Member
	release func()        // gives the home free; nil where temper up claims it
	client  client.Client // nil until the server was reached
}

// serviceLog is the file below a home that has what the service prints.
const serviceLog = "service.log"

var _ chaos.Host = (*chaosHost)(nil)

func (h *harness) newHost(ctx context.Context, home string, o trialOptions) (_ *chaosHost, err error) {
	p := config.DefaultProcess()
	p.Home, p.UIAddress, p.Python = home, "", h.python
	if p.Store = h.store; p.Store != "" && !h.servesStore() {
		u, err := url.Parse(p.Store)
		if err != nil {
			return nil, cli.Usagef("--store: %w", err)
		}
		p.Store = u.JoinPath(o.name).String()
	}
	addrs, err := proc.Addresses(3)
	if err != nil {
		return nil, err
	}
	p.TemporalAddress, p.SandboxAddress = addrs[0], addrs[1]
	if err := os.MkdirAll(marksDir(&p), 0o755); err != nil {
		return nil, err
	}
	if h.servesStore() {
		p.Store = string(config.StoreS3D) + "://" + addrs[2]
		if _, err := service.StoreChild(&p); err != nil { // makes the account, without which the store cannot be opened
			return nil, err
		}
	}
	store, err := workers.OpenStore(ctx, &p)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(p.Home, serviceLog))
	if err != nil {
		return nil, err
	}
	c := &chaosHost{process: p, temper: h.temper, input: h.input, store: store, log: log, points: o.points}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if o.elastic {
		return c, c.scatter(ctx)
	}
	c.members = []chaos.Member{{Name: chaos.Supervisor, Role: chaos.Supervisor, Command: c.up}}
	return c, nil
}

// marksDir is where fail points leave their marks.
func marksDir(p *config.Process) string { return filepath.Join(p.Home, "failpoints") }

// unreached returns the armed fail points at which nothing ended.
func (c *chaosHost) unreached() []string {
	var out []string
	for _, name := range c.points {
		if !failpoint.Reached(marksDir(&c.process), failpoint.Point(name)) {
			out = append(out, name)
		}
	}
	return out
}

// serveStore starts the store's server again, which ended with the service. The
// returned function stops it.
func (c *chaosHost) serveStore(ctx context.Context) (stop func(), err error) {
	if place, err := c.process.StorePlace(); err != nil || place.Kind != config.StoreS3D {
		return func() {}, err
	}
	child, err := service.StoreChild(&c.process)
	if err != nil {
		return nil, err
	}
	sup, err := proc.New(proc.Config{Children: []proc.Child{child}})
	if err != nil {
		return nil, err
	}
	if err := sup.Start(ctx); err != nil {
		return nil, err
	}
	return func() { _ = sup.Stop(context.WithoutCancel(ctx)) }, nil // only read
}

func (c *chaosHost) close() {
	if c.client != nil {
		c.client.Close()
	}
	if s, ok := c.store.(io.Closer); ok {
		_ = s.Close() // only read
	}
	if c.release != nil {
		c.release()
	}
	_ = c.log.Close() // a log
}

// Members implements chaos.Host.
func (c *chaosHost) Members() []chaos.Member { return c.members }

// up is the supervisor.
func (c *chaosHost) up() (*exec.Cmd, error) {
	p := c.process
	cmd := exec.Command(c.temper, "up", "--embedded", "--home", p.Home, "--temporal", p.TemporalAddress, "--namespace", p.Namespace,
		"--ui", p.UIAddress, "--sandbox", p.SandboxAddress, "--python", p.Python, "--store", p.Store)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if armed := c.armed(); armed != nil {
		cmd.Env = append(os.Environ(), armed...)
	}
	return cmd, nil
}

// armed is the environment that arms the fail points of the trial.
func (c *chaosHost) armed() []string {
	if len(c.points) == 0 {
		return nil
	}
	return []string{failpoint.EnvPoints + "=" + strings.Join(c.points, "=kill,") + "=kill", failpoint.EnvDir + "=" + marksDir(&c.process)}
}

// Store implements chaos.Host.
func (c *chaosHost) Store() blob.Store { return c.store }

// Run implements chaos.Host.
func (c *chaosHost) Run() artifact.Layout { return artifact.Layout{RunID: chaosRun} }

// FailPoints implements chaos.Host.
func (c *chaosHost) FailPoints() string { return marksDir(&c.process) }

// dialPause is the pause between two attempts to reach a server that is starting.
const dialPause = 50 * time.Millisecond

// Submit implements chaos.Host.
func (c *chaosHost) Submit(ctx context.Context) error {
	for {
		var err error
		if c.client, err = c.dial(ctx); err == nil {
			_, err := workflows.Start(ctx, c.client, c.input)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; see %s", err, c.log.Name())
		case <-time.After(dialPause):
		}
	}
}

func (c *chaosHost) dial(ctx context.Context) (client.Client, error) {
	return temporalclient.Dial(ctx, temporalclient.Config{
		Address: c.process.TemporalAddress, Namespace: c.process.Namespace, Logger: slog.New(slog.DiscardHandler),
	})
}

// askTimeout bounds one question to a server that may be dead.
const askTimeout = 2 * time.Second

// Ended implements chaos.Host.
func (c *chaosHost) Ended(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id := workflows.RunWorkflowID(chaosRun)
	d, err := c.client.DescribeWorkflow(ctx, id, "")
	if err != nil {
		return false, nil //nolint:nilerr // it is asked again
	}
	switch status := d.Status; status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return false, nil
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return true, nil
	default:
		err := c.client.GetWorkflow(ctx, id, "").Get(ctx, nil)
		return true, cmp.Or(err, errors.New(status.String()))
	}
}
