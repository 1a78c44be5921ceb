package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/passes"
)

// errLost means that the connection to a host has ended.
var errLost = errors.New("host is lost")

// slowness is the limit of the time of a pass at a host over the time of the trainer.
const slowness = 8

// peer is the hub's side of the connection to a host.
type peer struct {
	hub  *Hub
	conn *conn
	who  Identity
	rank int
	gone chan struct{} // closed when the host is lost

	mu       sync.Mutex
	seq      uint64
	waiting  map[uint64]chan answer
	lost     bool
	session  int // the session whose settings the host has, 0 for none
	epoch    int64
	revision int
	declined declined
}

// declined is a session, under an epoch of its lease, that a host refused to work for.
type declined struct {
	session int
	epoch   int64
}

// answer is the reply of a host to a request.
type answer struct {
	message
	body []*tensors.Tensor
}

// suits returns an error unless a is an answer to a request of that kind.
func (a answer) suits(question kind) error {
	want := kindReady
	if question == kindPass {
		want = kindResult
	}
	switch {
	case a.Kind == want, a.Kind == kindFailed && question == kindSetup: // the caller reads why
		return nil
	case a.Kind == kindFailed:
		return errors.New(a.Reason)
	}
	return fmt.Errorf("%w: %s answers %s", errFrame, a.Kind, question)
}

func newPeer(h *Hub, c *conn, who Identity, rank int) *peer {
	return &peer{hub: h, conn: c, who: who, rank: rank, gone: make(chan struct{}), waiting: map[uint64]chan answer{}}
}

// listen delivers answers to the goroutines that wait for them, until the host is lost.
func (p *peer) listen(ctx context.Context) error {
	var beats sync.WaitGroup
	defer beats.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	beats.Go(func() { p.conn.beat(ctx) })
	for {
		m, body, err := p.conn.receive()
		if err != nil {
			return err
		}
		switch m.Kind {
		case kindBeat:
		case kindReady, kindResult, kindFailed:
			p.mu.Lock()
			to := p.waiting[m.Seq]
			delete(p.waiting, m.Seq)
			p.mu.Unlock()
			if to != nil { // nil after the caller has given up
				to <- answer{m, body}
			}
		default:
			return fmt.Errorf("%w: %q", errFrame, m.Kind)
		}
	}
}

// beat sends signs of life to the other side.
func (c *conn) beat(ctx context.Context) {
	ticker := time.NewTicker(c.patience / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if c.send(message{Kind: kindBeat}, nil) != nil {
				_ = c.Close() // ends the reader
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// fail marks the host lost and ends all pending requests.
func (p *peer) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lost {
		p.lost = true
		close(p.gone)
	}
	_ = p.conn.Close() // ends the reader
}

// ask sends a request and waits for its answer. It disconnects a host that fails a request
// or does not answer in time; the host joins again with fresh state.
func (p *peer) ask(ctx context.Context, pace func() time.Duration, m message, body []blob) (message, []*tensors.Tensor, error) {
	to := make(chan answer, 1)
	p.mu.Lock()
	if p.lost {
		p.mu.Unlock()
		return message{}, nil, errLost
	}
	p.seq++
	m.Seq = p.seq
	p.waiting[m.Seq] = to
	p.mu.Unlock()
	if err := p.send(ctx, m, body); err != nil {
		p.fail()
		return message{}, nil, fmt.Errorf("%w: %w", errLost, err)
	}
	look := time.NewTicker(min(p.hub.cfg.Overdue/8, time.Second))
	defer look.Stop()
	for asked := time.Now(); ; {
		select {
		case a := <-to:
			if err := a.suits(m.Kind); err != nil {
				device.Free(a.body...)
				return message{}, nil, p.blame(err)
			}
			return a.message, a.body, nil
		case <-p.gone:
			return message{}, nil, errLost
		case <-ctx.Done():
			p.mu.Lock()
			delete(p.waiting, m.Seq)
			p.mu.Unlock()
			return message{}, nil, ctx.Err()
		case <-look.C:
			if quiet, limit := time.Since(p.conn.quietSince(asked)), p.hub.cfg.Overdue+slowness*pace(); pace() > 0 && quiet > limit {
				return message{}, nil, p.blame(fmt.Errorf("no answer to %s in %v", m.Kind, limit))
			}
		}
	}
}

// send sends a request. It sends a frame whole, since a part of one would cost the host;
// after the end of ctx it has the connection's patience to do so.
func (p *peer) send(ctx context.Context, m message, body []blob) error {
	sent := make(chan struct{})
	defer close(sent)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-sent:
		case <-time.After(p.conn.patience):
			p.fail()
		}
	})()
	return p.conn.send(m, body)
}

// blame disconnects a host that failed, and returns err.
func (p *peer) blame(err error) error {
	p.hub.cfg.Log.Error("host fails", "host", p.who.Name, "rank", p.rank, "err", err)
	p.fail()
	return err
}

// declines reports whether the host refused a session under this epoch of its lease.
func (p *peer) declines(d declined) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.declined == d
}

// update sends the host the settings and the weights of a session unless it has them, and
// reports whether it has them now.
func (p *peer) update(ctx context.Context, s *Session, at passes.RemoteSetup, weights func() ([]blob, error)) bool {
	epoch := s.epoch()
	p.mu.Lock()
	known, current := p.session == s.id && p.epoch == epoch, p.revision == at.Revision
	p.mu.Unlock()
	if known && current {
		return true
	}
	p.note(func() { p.session = 0 }) // unknown until the host has all of it
	if !known {
		p.conn.limit.Store(maxBytes(at.Config.Network))
		settings, err := setupOf(s.run, epoch, at.Config)
		if err != nil {
			p.hub.cfg.Log.Error("settings are not stated for hosts", "run_id", s.run, "err", err)
			return false
		}
		m, _, err := p.ask(ctx, at.Pace, message{Kind: kindSetup, Setup: settings}, nil)
		if err != nil {
			return false
		}
		if m.Kind == kindFailed {
			p.hub.cfg.Log.Error("host is left out", "host", p.who.Name, "rank", p.rank, "run_id", s.run, "err", m.Reason)
			p.note(func() { p.declined = declined{s.id, epoch} })
			return false
		}
	}
	body, err := weights()
	if err != nil {
		p.hub.cfg.Log.Error("weights are not copied for hosts", "run_id", s.run, "err", err)
		return false
	}
	before := p.conn.sent.Load()
	if _, _, err := p.ask(ctx, at.Pace, message{Kind: kindWeights, Trained: at.Trained}, body); err != nil {
		return false
	}
	p.hub.count(func(n *Counts) { n.Updated++; n.WeightsSent += p.conn.sent.Load() - before })
	p.note(func() { p.session, p.epoch, p.revision = s.id, epoch, at.Revision })
	return true
}

func (p *peer) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}
