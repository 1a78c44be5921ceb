package hosts

import (
	"context"
	"net"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
)

// Rogue is a host that beats, and answers as it is told.
type Rogue struct {
	Identity
	Patience time.Duration
	// Do is called with the kind of each question. What it returns is sent; an answer
	// without a kind is none.
	Do func(question string) Answer
}

// Answer is what a rogue sends.
type Answer struct {
	Kind string
	Body []*tensors.Tensor
}

// Ready answers settings and weights.
func Ready() Answer { return Answer{Kind: string(kindReady)} }

// Result answers a pass.
func Result(body ...*tensors.Tensor) Answer { return Answer{Kind: string(kindResult), Body: body} }

// Serve works until the hub or ctx ends.
func (r Rogue) Serve(ctx context.Context, raw net.Conn) error {
	c := &conn{Conn: raw, patience: r.Patience}
	c.limit.Store(1 << 30)
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	if _, err := (&Host{Identity: r.Identity}).join(c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	beats := make(chan struct{})
	go func() { defer close(beats); c.beat(ctx) }()
	defer func() { cancel(); <-beats }()
	for {
		m, _, err := c.receive()
		if err != nil {
			return err
		}
		if m.Kind == kindBeat {
			continue
		}
		a := r.Do(string(m.Kind))
		if a.Kind == "" {
			continue
		}
		body := make([]blob, len(a.Body))
		for i, t := range a.Body {
			body[i] = blobOf(t)
		}
		if err := c.send(message{Kind: kind(a.Kind), Seq: m.Seq}, body); err != nil {
			return err
		}
	}
}
