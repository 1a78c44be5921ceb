package hosts

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/packing"
	"temper/trainer/passes"
)

// Session lets the hosts make passes for one trainer of the hub's process.
type Session struct {
	hub *Hub
	run string
	id  int
}

var _ passes.RemotePasses = (*Session)(nil)

// Session makes a session for a trainer of a run. Each trainer needs a separate one.
func (h *Hub) Session(run string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session++
	return &Session{hub: h, run: run, id: h.session}
}

func (s *Session) epoch() int64 {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.epochs[s.run]
}

// Acquire implements passes.RemotePasses. A host that joins later makes passes from the
// next call on.
func (s *Session) Acquire(at passes.RemoteSetup) (lanes int, connect func(context.Context, func(passes.Lane))) {
	var able []*peer
	now := declined{s.id, s.epoch()}
	for _, p := range s.hub.connected() {
		if !p.declines(now) {
			able = append(able, p)
			lanes += p.who.Lanes
		}
	}
	weights := sync.OnceValues(func() ([]blob, error) { return weightsOf(at) })
	return lanes, func(ctx context.Context, offer func(passes.Lane)) {
		var all sync.WaitGroup
		for _, p := range able {
			all.Go(func() {
				if p.update(ctx, s, at, weights) {
					for range p.who.Lanes {
						offer(lane{p, at})
					}
				}
			})
		}
		all.Wait()
	}
}

// weightsOf copies the weights for the hosts.
func weightsOf(at passes.RemoteSetup) ([]blob, error) {
	named, err := at.Weights()
	if err != nil {
		return nil, err
	}
	out := make([]blob, len(named))
	for i, w := range named {
		out[i] = blobOfFloats(w.Shape, w.Data)
	}
	return out, nil
}

// lane makes one pass at a time at a host.
type lane struct {
	peer *peer
	at   passes.RemoteSetup
}

// Make implements passes.Lane.
func (l lane) Make(ctx context.Context, p passes.Program, shape packing.Shape, args []any) ([]device.Value, error) {
	inputs := make([]blob, len(args))
	for i, x := range args {
		t, ok := x.(*tensors.Tensor)
		if !ok {
			return nil, fmt.Errorf("input %d of %s is a %T", i, p, x)
		}
		inputs[i] = blobOf(t)
	}
	_, out, err := l.peer.ask(ctx, l.at.Pace, message{Kind: kindPass, Pass: p, Shape: shape}, inputs)
	if err == nil {
		if err = l.at.CheckResults(p, shape, out); err != nil {
			device.Free(out...)
			err = l.peer.blame(err)
		}
	}
	hub := l.peer.hub
	if err != nil {
		if ctx.Err() == nil {
			hub.count(func(n *Counts) { n.Redone++ })
		}
		return nil, err
	}
	hub.count(func(n *Counts) { n.Passes++ })
	return device.Wholes(out), nil
}
