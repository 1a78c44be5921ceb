package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/temporalclient"
	"temper/sandbox/jail"
)

// Check finds everything that keeps the service from starting, all at once, except for its
// store. It waits a while for ports that a service of the home still has, and reports this
// to say.
func (o Options) Check(ctx context.Context, p *config.Process, say func(string)) error {
	wrong := []error{cli.FindPython(p.Python), awaitListeners(ctx, p, o, say), checkLayers(ctx, p.Python, o.Require)}
	if o.Embedded {
		if path, err := temporaldPath(); err != nil {
			wrong = append(wrong, err)
		} else if _, err := os.Stat(path); err != nil {
			wrong = append(wrong, fmt.Errorf("%s not found: build it with ./task build, or name a running server with TEMPORAL_ADDRESS", path))
		}
	}
	return errors.Join(wrong...)
}

// CheckServer connects to the Temporal server, unless this service runs the server.
func (o Options) CheckServer(ctx context.Context, p *config.Process) error {
	if o.Embedded {
		return nil
	}
	c, err := temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		c.Close()
	}
	return err
}

// checkListeners finds ports that are taken or asked for twice.
func checkListeners(p *config.Process, o Options) error {
	type listener struct{ flag, addr string }
	listeners := []listener{{"--sandbox", p.SandboxAddress}}
	if o.Dashboard != "" {
		if _, port, err := net.SplitHostPort(o.Dashboard); err == nil && port != "0" {
			listeners = append(listeners, listener{"--dashboard", o.Dashboard})
		}
	}
	if o.Embedded {
		listeners = append(listeners, listener{"--temporal", p.TemporalAddress}, listener{"--ui", p.UIAddress})
	}
	if place, err := p.StorePlace(); err == nil && place.Kind == config.StoreS3D {
		listeners = append(listeners, listener{"--store", StoreAddress(place)})
	}
	var wrong []error
	usedBy := map[string]string{}
	for _, l := range listeners {
		if l.addr == "" {
			continue
		}
		if other, twice := usedBy[l.addr]; twice {
			wrong = append(wrong, fmt.Errorf("%s and %s are both %s: choose another for one of them", other, l.flag, l.addr))
			continue
		}
		usedBy[l.addr] = l.flag
		if err := proc.CheckListen(l.addr); err != nil {
			wrong = append(wrong, fmt.Errorf("%w: choose another with %s, or stop the other process", err, l.flag))
		}
	}
	return errors.Join(wrong...)
}

// checkLayers starts a jail for a moment when layers are required, so that a
// lacking one is told at once and not by a child that does not start.
func checkLayers(ctx context.Context, python string, require []string) error {
	if len(require) == 0 || cli.FindPython(python) != nil {
		return nil
	}
	j, err := jail.New(ctx, jail.Config{Python: python, Require: require})
	if err != nil {
		return fmt.Errorf("--sandbox-require: %w", err)
	}
	return j.Close()
}
