package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/supervise"
	"temper/internal/temporalclient"
	"temper/sandbox/jail"
)

// checkUp finds what is wrong before anything is started, all at once.
func checkUp(ctx context.Context, p *config.Process, o *upOptions) error {
	if err := p.Validate(); err != nil {
		return err
	}
	wrong := []error{checkUpStore(ctx, p, o), cli.FindPython(p.Python), awaitListeners(ctx, p, o.embedded), checkLayers(ctx, p.Python, o.require)}
	if o.embedded {
		if path, err := temporaldPath(); err != nil {
			wrong = append(wrong, err)
		} else if _, err := os.Stat(path); err != nil {
			wrong = append(wrong, fmt.Errorf("%s not found: build it with ./task build, or name a running server with TEMPORAL_ADDRESS", path))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	if o.embedded {
		return nil
	}
	c, err := temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		c.Close()
	}
	return err
}

// checkUpStore checks the store and the run against it. One that is not there
// before it is started can only be asked afterwards.
func checkUpStore(ctx context.Context, p *config.Process, o *upOptions) error {
	if !servesStore(p) {
		store, err := openStore(ctx, p)
		if err != nil {
			return err
		}
		return o.checkStore(ctx, store)
	}
	err := findS3D()
	if o.config != "" {
		_, loadErr := o.load()
		err = errors.Join(err, loadErr)
	}
	return err
}

// checkListeners finds ports that are taken or asked for twice.
func checkListeners(p *config.Process, embedded bool) error {
	type listener struct{ flag, addr string }
	listeners := []listener{{"--sandbox", p.SandboxAddress}}
	if embedded {
		listeners = append(listeners, listener{"--temporal", p.TemporalAddress}, listener{"--ui", p.UIAddress})
	}
	if place, err := p.StorePlace(); err == nil && place.Kind == config.StoreS3D {
		listeners = append(listeners, listener{"--store", storeAddress(place)})
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
		if err := supervise.CheckListen(l.addr); err != nil {
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
