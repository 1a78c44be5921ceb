package hosts

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// DefaultPatience is the longest time that a peer may make no progress.
const DefaultPatience = 10 * time.Second

// DefaultOverdue leaves time to open a device, and to compile a program for it.
const DefaultOverdue = 5 * time.Minute

// Config of a hub.
type Config struct {
	Identity
	// Token that hosts must present; "" accepts any.
	Token string
	// Patience is the longest silence of a host; 0 is DefaultPatience.
	Patience time.Duration
	// Overdue is the longest time that a live host may take for an answer, beside the time
	// that its pace allows; 0 is DefaultOverdue.
	Overdue time.Duration
	Log     *slog.Logger
}

// Counts of a hub since its start.
type Counts struct {
	Hosts, Lanes         int
	Joined, Lost         int64
	Refused              int64
	Passes, Redone       int64 // made by hosts; repeated after the loss of a host
	Sent, Received       int64 // bytes
	WeightsSent, Updated int64 // bytes of weights in Sent; number of times that a host got them
}

// Hub accepts the hosts of a trainer.
type Hub struct {
	cfg Config

	mu      sync.Mutex
	hosts   map[int]*peer // by rank
	epochs  map[string]int64
	session int
	counts  Counts
}

// NewHub makes a hub without hosts.
func NewHub(c Config) *Hub {
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	c.Overdue = cmp.Or(c.Overdue, DefaultOverdue)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{cfg: c, hosts: map[int]*peer{}, epochs: map[string]int64{}}
}

// maxStrangers bounds the connections without a hello.
const maxStrangers = 64

// maxPause is the longest pause after a connection that could not be accepted.
const maxPause = time.Second

// Serve accepts hosts at a listener until ctx ends, and then disconnects all of them. It
// closes the listener. Running out of file descriptors or memory does not end it.
func (h *Hub) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept ends
	defer stop()
	defer l.Close() //nolint:errcheck // it accepts no more connections
	serving, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	strangers := make(chan struct{}, maxStrangers)
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil: // serving may end a moment after the listener
			return nil //nolint:nilerr // ctx ended it
		case !isTransient(err):
			return err
		default:
			pause = min(max(2*pause, 5*time.Millisecond), maxPause)
			h.cfg.Log.Warn("no connection is accepted", "err", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		select {
		case strangers <- struct{}{}:
			work.Go(func() { h.serveHost(serving, c, sync.OnceFunc(func() { <-strangers })) })
		default:
			h.count(func(n *Counts) { n.Refused++ })
			_ = c.Close() // the other side tries again
		}
	}
}

// isTransient reports whether a later Accept may succeed after err.
func isTransient(err error) bool {
	for _, one := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, os.ErrDeadlineExceeded} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// serveHost serves a host from its hello to its end. It calls known after the hello, which
// must come within the patience of the hub.
func (h *Hub) serveHost(ctx context.Context, raw net.Conn, known func()) {
	defer known()
	c := &conn{Conn: raw, patience: h.cfg.Patience}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // ends a pending read
	defer stop()
	defer raw.Close() //nolint:errcheck // nothing is written after this
	late := time.AfterFunc(h.cfg.Patience, func() { _ = raw.Close() })
	who, err := h.admit(c)
	if !late.Stop() && err == nil {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		if ctx.Err() == nil {
			h.cfg.Log.Error("host is left out", "host", who.Name, "address", raw.RemoteAddr().String(), "err", err)
			h.count(func(n *Counts) { n.Refused++ })
		}
		return
	}
	known()
	p := h.join(c, who)
	if err := c.send(message{Kind: kindWelcome, Rank: p.rank}, nil); err == nil {
		h.cfg.Log.Info("host joins", "host", who.Name, "rank", p.rank, "lanes", who.Lanes, "address", raw.RemoteAddr().String())
		err = p.listen(ctx)
		if ctx.Err() == nil {
			h.cfg.Log.Warn("host is lost", "host", who.Name, "rank", p.rank, "err", err)
		}
	}
	h.leave(p)
}

// admit reads the hello of a host and accepts or refuses it.
func (h *Hub) admit(c *conn) (Identity, error) {
	m, _, err := c.receive()
	if err != nil {
		return Identity{}, err
	}
	if m.Kind != kindHello || m.Hello == nil {
		return Identity{}, errFrame
	}
	reason := m.Hello.refuse(h.cfg.Identity)
	if subtle.ConstantTimeCompare([]byte(m.Hello.Token), []byte(h.cfg.Token)) != 1 {
		reason = "the token differs from the token of the trainer"
	}
	if reason == "" {
		return m.Hello.Identity, nil
	}
	return m.Hello.Identity, errors.Join(errors.New(reason), c.send(message{Kind: kindRefused, Reason: reason}, nil))
}

// join gives a host the lowest free rank; the trainer has rank 0.
func (h *Hub) join(c *conn, who Identity) *peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	rank := 1
	for h.hosts[rank] != nil {
		rank++
	}
	p := newPeer(h, c, who, rank)
	h.hosts[rank] = p
	h.counts.Joined++
	return p
}

func (h *Hub) leave(p *peer) {
	p.fail()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.hosts, p.rank)
	h.counts.Lost++
	h.counts.Sent += p.conn.sent.Load()
	h.counts.Received += p.conn.received.Load()
}

// Lead records the epoch with which this process holds the lease of a run. Hosts refuse a
// trainer whose epoch is below one that they have worked for.
func (h *Hub) Lead(run string, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochs[run] = epoch
}

// Counts returns the counts of the hub.
func (h *Hub) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.counts
	for _, p := range h.hosts {
		out.Hosts++
		out.Lanes += p.who.Lanes
		out.Sent += p.conn.sent.Load()
		out.Received += p.conn.received.Load()
	}
	return out
}

func (h *Hub) count(add func(*Counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add(&h.counts)
}

// connected returns the hosts by rank.
func (h *Hub) connected() []*peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*peer
	for _, rank := range slices.Sorted(maps.Keys(h.hosts)) {
		out = append(out, h.hosts[rank])
	}
	return out
}

// Dismiss disconnects all hosts. They may join again.
func (h *Hub) Dismiss() {
	for _, p := range h.connected() {
		p.fail()
	}
}
