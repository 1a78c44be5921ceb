package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// listing is an address that is dialled whenever it has no link; dispatcher.mu guards it.
type listing struct {
	address string
	until   time.Time     // end of the lease; zero for an address of the configuration
	renewed chan struct{} // holds one value after a renewal
	removed chan struct{} // closed when the node leaves
	ended   chan struct{} // closed when maintain has returned
	node    *node         // nil while there is no link

	done, retried, overloaded, deaths int64
	lastError                         string
}

// registry lists the nodes and keeps a link to each. Its maps and the listings belong to the
// lock of the dispatcher: a node joins and leaves in the order in which calls see it.
type registry struct {
	open     Dial
	log      *slog.Logger
	dispatch *dispatcher
	*background

	listed  map[string]*listing
	leaving map[string]*listing // unlisted, with calls still on them
}

func newRegistry(cfg Config, b *background, d *dispatcher) *registry {
	return &registry{open: cfg.Dial, log: cfg.Logger, dispatch: d, background: b, listed: make(map[string]*listing), leaving: make(map[string]*listing)}
}

// forever is the lease of an address of the configuration.
const forever = time.Duration(0)

// Lease is how long a node that joined stays listed after its stream has ended without a
// renewal; Rejoin is the period of renewals.
const (
	Lease  = 15 * time.Second
	Rejoin = 5 * time.Second
)

// maxListed bounds the list of nodes.
const maxListed = 1024

// Back-off of dialling; it restarts after a link that lived for healthy.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	healthy      = 10 * time.Second
	dialTimeout  = 5 * time.Second
)

// errDraining refuses a link to a node that drains.
var errDraining = errors.New("node is draining")

// errTooMany refuses a node.
var errTooMany = fmt.Errorf("%d nodes are listed, the limit", maxListed)

// list lists a node or renews its lease, and reports whether it is new. The address is
// canonical.
func (r *registry) list(address string, lease time.Duration) (bool, error) {
	r.dispatch.mu.Lock()
	defer r.dispatch.mu.Unlock()
	if r.dispatch.closed {
		return false, errShutdown
	}
	m := r.listed[address]
	if m != nil {
		if !m.until.IsZero() {
			m.until = time.Now().Add(lease)
		}
		select {
		case m.renewed <- struct{}{}:
		default:
		}
		return false, nil
	}
	if len(r.listed) >= maxListed {
		return false, errTooMany
	}
	m = &listing{address: address, renewed: make(chan struct{}, 1), removed: make(chan struct{}), ended: make(chan struct{})}
	if lease != forever {
		m.until = time.Now().Add(lease)
	}
	r.listed[address] = m
	before := r.leaving[address]
	r.tasks.Go(func() {
		defer r.forget(m)
		if before == nil || r.awaitEnd(before, m) {
			r.maintain(m)
		}
	})
	return true, nil
}

// Errors of remove.
var (
	errNotListed  = errors.New("is not listed")
	errConfigured = errors.New("is part of the gateway's configuration")
)

// remove unlists a node that has joined: it finishes its calls and gets no more.
func (r *registry) remove(address string) error {
	r.dispatch.mu.Lock()
	defer r.dispatch.mu.Unlock()
	m := r.listed[address]
	switch {
	case m == nil:
		return errNotListed
	case m.until.IsZero():
		return errConfigured
	}
	delete(r.listed, address)
	r.leaving[address] = m
	close(m.removed)
	return nil
}

// awaitEnd waits until the link of an earlier listing of m's address has ended: two links to
// one node would not count each other's calls. It reports whether m is still listed then.
func (r *registry) awaitEnd(before, m *listing) bool {
	select {
	case <-before.ended:
	case <-r.life.Done():
		return false
	}
	select {
	case <-m.removed:
		return false
	default:
		return true
	}
}

// forget ends the life of m in the registry.
func (r *registry) forget(m *listing) {
	r.dispatch.mu.Lock()
	defer r.dispatch.mu.Unlock()
	if r.leaving[m.address] == m {
		delete(r.leaving, m.address)
	}
	close(m.ended)
}

// expired unlists m if its lease has ended, and reports whether it has.
func (r *registry) expired(m *listing) bool {
	r.dispatch.mu.Lock()
	defer r.dispatch.mu.Unlock()
	if m.until.IsZero() || time.Now().Before(m.until) {
		return false
	}
	if r.listed[m.address] == m {
		delete(r.listed, m.address)
	}
	return true
}

// maintain dials m whenever it has no link, until it is unlisted. A renewal dials at once.
func (r *registry) maintain(m *listing) {
	log := r.log.With("node", m.address)
	backoff, failures := firstBackoff, 0
	for {
		link, err := r.dial(m)
		if err == nil {
			log.Info("sandbox node is up", "slots", link.Load().Slots)
			born := time.Now()
			err = r.serveLink(m, link)
			select {
			case <-m.renewed: // before the link ended
			default:
			}
			if err == nil {
				log.Info("sandbox node left")
				return
			}
			if time.Since(born) > healthy {
				backoff = firstBackoff
			}
			failures = 0
		}
		if failures++; failures == 1 && r.life.Err() == nil {
			log.Warn("sandbox node is down", "err", err)
		}
		r.noteError(m, err)
		select {
		case <-r.life.Done():
			return
		case <-m.removed:
			return
		case <-m.renewed:
			backoff = firstBackoff
		case <-time.After(backoff):
			backoff = min(2*backoff, lastBackoff)
		}
		if r.expired(m) {
			log.Info("sandbox node is forgotten", "silent_for", Lease)
			return
		}
	}
}

// dial opens a link to m, unless the node drains.
func (r *registry) dial(m *listing) (Link, error) {
	ctx, cancel := context.WithTimeout(r.life, dialTimeout)
	defer cancel()
	link, err := r.open(ctx, m.address)
	if err != nil {
		return nil, err
	}
	if link.Load().Draining {
		link.Close()
		return nil, errDraining
	}
	return link, nil
}

func (r *registry) noteError(m *listing, err error) {
	r.dispatch.mu.Lock()
	defer r.dispatch.mu.Unlock()
	m.lastError = err.Error()
}

// serveLink gives calls to a link until it ends. The error is nil when it must not be opened
// again.
func (r *registry) serveLink(m *listing, link Link) error {
	defer link.Close()
	n := &node{listing: m, link: link, empty: make(chan struct{})}
	n.life, n.retire = context.WithCancel(r.life)
	defer n.retire() // before Close: attempts end first
	r.dispatch.addNode(n)
	select {
	case <-link.Done():
		r.dispatch.removeNode(n)
		return errors.Join(link.Err(), r.life.Err())
	case <-r.life.Done():
		r.dispatch.removeNode(n)
		return nil
	case <-m.removed:
	}
	r.dispatch.retireNode(n)
	select {
	case <-n.empty:
	case <-link.Done():
	case <-r.life.Done():
	}
	r.dispatch.removeNode(n)
	return nil
}
