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

// errLost means that a member is gone.
var errLost = errors.New("member is lost")

// slowness is how many times as long as the trainer a member may take for a pass.
const slowness = 8

// peer is a member as the hub sees it.
type peer struct {
	hub  *Hub
	conn *conn
	who  Identity
	rank int
	gone chan struct{} // closed when it is lost

	mu       sync.Mutex
	seq      uint64
	waiting  map[uint64]chan answer
	lost     bool
	session  int // whose settings it has, 0 for none
	epoch    int64
	revision int
	declined declined
}

// declined is what a member would not work for: a session, under an epoch of its lease.
type declined struct {
	session int
	epoch   int64
}

// answer is what a member says to a question.
type answer struct {
	message
	body []*tensors.Tensor
}

// suits refuses what does not answer a question.
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

// listen hands answers to those who wait for them, until the member is lost.
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
			if to != nil { // nil where nobody waits any more
				to <- answer{m, body}
			}
		default:
			return fmt.Errorf("%w: %q", errFrame, m.Kind)
		}
	}
}

// beat tells the other side now and then that this one lives.
func (c *conn) beat(ctx context.Context) {
	ticker := time.NewTicker(c.patience / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if c.send(message{Kind: kindBeat}, nil) != nil {
				_ = c.Close() // the reader ends with it
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// fail ends all waiting.
func (p *peer) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lost {
		p.lost = true
		close(p.gone)
	}
	_ = p.conn.Close() // its reader ends
}

// ask sends a question and waits for its answer. A member that cannot do what is asked, or
// does not answer in time, is let go: it joins again, with nothing of what went wrong.
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

// send sends a question. A frame that is begun is sent whole, since half of one would cost
// the member; after the end of ctx that has as long as patience says.
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

// blame lets a member go that did not do its part.
func (p *peer) blame(err error) error {
	p.hub.cfg.Log.Error("member fails", "member", p.who.Name, "rank", p.rank, "err", err)
	p.fail()
	return err
}

// declines reports whether the member would not work for a session, the last time that it
// was asked under this epoch.
func (p *peer) declines(d declined) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.declined == d
}

// update gives the member the settings and the weights of a session, unless it has them,
// and reports whether it has.
func (p *peer) update(ctx context.Context, s *Session, at passes.Standing, weights func() ([]blob, error)) bool {
	epoch := s.epoch()
	p.mu.Lock()
	known, current := p.session == s.id && p.epoch == epoch, p.revision == at.Revision
	p.mu.Unlock()
	if known && current {
		return true
	}
	p.note(func() { p.session = 0 }) // whatever it has if this ends early
	if !known {
		p.conn.limit.Store(maxBytes(at.Config.Network))
		settings, err := setupOf(s.run, epoch, at.Config)
		if err != nil {
			p.hub.cfg.Log.Error("settings are not stated for members", "run_id", s.run, "err", err)
			return false
		}
		m, _, err := p.ask(ctx, at.Pace, message{Kind: kindSetup, Setup: settings}, nil)
		if err != nil {
			return false
		}
		if m.Kind == kindFailed {
			p.hub.cfg.Log.Error("member is left out", "member", p.who.Name, "rank", p.rank, "run_id", s.run, "err", m.Reason)
			p.note(func() { p.declined = declined{s.id, epoch} })
			return false
		}
	}
	body, err := weights()
	if err != nil {
		p.hub.cfg.Log.Error("weights are not copied for members", "run_id", s.run, "err", err)
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
