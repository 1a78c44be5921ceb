package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"temper/sandbox/httpapi"
)

// member is an address that is dialled again and again; guarded by Gateway.mu.
type member struct {
	address string
	until   time.Time     // end of the lease; zero for the ones of the configuration
	spoke   chan struct{} // after a word of a node that is listed; holds one
	quit    chan struct{} // closed when it is unlisted by hand
	ended   chan struct{} // closed when its keeper has
	node    *node         // nil while there is no link

	done, retried, overloaded, deaths int64
	lastError                         string
}

// forever is the lease of an address that is part of the configuration.
const forever = time.Duration(0)

// Lease is how long a node that joined by itself is kept without a word from it
// once its stream is gone; Rejoin is how often it has to speak.
const (
	Lease  = 15 * time.Second
	Rejoin = 5 * time.Second
)

// maxMembers bounds the list of nodes.
const maxMembers = 1024

// Back-off of dialling; a link that lived for healthy starts anew.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	healthy      = 10 * time.Second
	dialTimeout  = 5 * time.Second
)

// errDraining is why a node that is there gets no link.
var errDraining = errors.New("node is draining")

// errTooMany refuses a node.
var errTooMany = fmt.Errorf("%d nodes are listed, the limit", maxMembers)

// enroll lists a node or renews its lease, and reports whether it is new. The
// address is canonical.
func (g *Gateway) enroll(address string, lease time.Duration) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false, errShutdown
	}
	m := g.members[address]
	if m != nil {
		if !m.until.IsZero() {
			m.until = time.Now().Add(lease)
		}
		select {
		case m.spoke <- struct{}{}:
		default:
		}
		return false, nil
	}
	if len(g.members) >= maxMembers {
		return false, errTooMany
	}
	m = &member{address: address, spoke: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	if lease != forever {
		m.until = time.Now().Add(lease)
	}
	g.members[address] = m
	before := g.parting[address]
	g.owners.Go(func() {
		defer g.gone(m)
		if before == nil || g.after(before, m) {
			g.keep(m)
		}
	})
	return true, nil
}

// Why a node cannot be dismissed.
var (
	errNotListed  = errors.New("is not listed")
	errConfigured = errors.New("is part of the gateway's configuration")
)

// dismiss unlists a node that has joined: it gets nothing new and keeps what it has.
func (g *Gateway) dismiss(address string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[address]
	switch {
	case m == nil:
		return errNotListed
	case m.until.IsZero():
		return errConfigured
	}
	delete(g.members, address)
	g.parting[address] = m
	close(m.quit)
	return nil
}

// after waits until the keeper that had m's address before has ended: two links
// to one node would not know of each other's calls. It reports whether m is
// still wanted then.
func (g *Gateway) after(before, m *member) bool {
	select {
	case <-before.ended:
	case <-g.life.Done():
		return false
	}
	select {
	case <-m.quit:
		return false
	default:
		return true
	}
}

func (g *Gateway) gone(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parting[m.address] == m {
		delete(g.parting, m.address)
	}
	close(m.ended)
}

// expired unlists a member without a link whose lease is over.
func (g *Gateway) expired(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.until.IsZero() || time.Now().Before(m.until) {
		return false
	}
	if g.members[m.address] == m {
		delete(g.members, m.address)
	}
	return true
}

// keep dials a member whenever it has no link, until it is unlisted. A node that
// speaks is there: it is dialled at once, however long it was away.
func (g *Gateway) keep(m *member) {
	log := g.cfg.Logger.With("node", m.address)
	backoff, failures := firstBackoff, 0
	for {
		link, err := g.dial(m)
		if err == nil {
			log.Info("sandbox node is up", "slots", link.Load().Slots)
			born := time.Now()
			err = g.hold(m, link)
			select {
			case <-m.spoke: // before the link ended
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
		if failures++; failures == 1 && g.life.Err() == nil {
			log.Warn("sandbox node is down", "err", err)
		}
		g.note(m, err)
		select {
		case <-g.life.Done():
			return
		case <-m.quit:
			return
		case <-m.spoke:
			backoff = firstBackoff
		case <-time.After(backoff):
			backoff = min(2*backoff, lastBackoff)
		}
		if g.expired(m) {
			log.Info("sandbox node is forgotten", "silent_for", Lease)
			return
		}
	}
}

func (g *Gateway) dial(m *member) (Link, error) {
	ctx, cancel := context.WithTimeout(g.life, dialTimeout)
	defer cancel()
	link, err := g.cfg.Dial(ctx, m.address)
	if err != nil {
		return nil, err
	}
	if link.Load().Draining {
		link.Close()
		return nil, errDraining
	}
	return link, nil
}

func (g *Gateway) note(m *member, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.lastError = err.Error()
}

// hold gives calls to a link until it is gone. The error is nil when it is not
// to be opened again.
func (g *Gateway) hold(m *member, link Link) error {
	defer link.Close()
	n := &node{member: m, link: link, empty: make(chan struct{})}
	n.life, n.retire = context.WithCancel(g.life)
	defer n.retire() // before Close: attempts end first
	g.join(n)
	select {
	case <-link.Done():
		g.part(n)
		return errors.Join(link.Err(), g.life.Err())
	case <-g.life.Done():
		g.part(n)
		return nil
	case <-m.quit:
	}
	g.sendOff(n)
	select {
	case <-n.empty:
	case <-link.Done():
	case <-g.life.Done():
	}
	g.part(n)
	return nil
}

// join lets n take calls.
func (g *Gateway) join(n *node) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	n.member.node = n
	n.member.lastError = ""
	n.refresh(now)
	g.nodes = append(g.nodes, n)
	g.meet(now)
	g.dispatch(now)
}

// part takes n off the list. The calls on it come back by themselves.
func (g *Gateway) part(n *node) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, m := range g.nodes {
		if m == n {
			g.nodes = append(g.nodes[:i:i], g.nodes[i+1:]...)
			break
		}
	}
	n.member.node = nil
	n.refresh(now) // it may have said that it would go
	if !n.leaving && !n.load.Draining && g.life.Err() == nil {
		n.member.deaths++
	}
	n.bound.moveTo(&g.openings)
	g.meet(now)
	g.dispatch(now)
}

// sendOff lets n finish what it has.
func (g *Gateway) sendOff(n *node) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	n.leaving = true
	if n.inFlight == 0 {
		close(n.empty)
	}
	n.bound.moveTo(&g.openings)
	g.meet(now)
	g.dispatch(now)
}

// beat is how soon the gateway sees what a node has announced, if no call ends
// there before.
const beat = 100 * time.Millisecond

// tick does what only time brings about: loads that changed, pauses that ended,
// patience that has run out.
func (g *Gateway) tick() {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case now := <-ticker.C:
			g.look(now)
		}
	}
}

func (g *Gateway) look(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		n.refresh(now)
		if !n.accepting() {
			n.bound.moveTo(&g.openings)
		}
	}
	g.meet(now)
	if g.forsaken(now) {
		g.giveUp()
	}
	g.dispatch(now)
}

// meet notes since when there is no node that takes calls.
func (g *Gateway) meet(now time.Time) {
	for _, n := range g.nodes {
		if n.accepting() {
			g.lonely = time.Time{}
			return
		}
	}
	if g.lonely.IsZero() {
		g.lonely = now
	}
}

// forsaken reports whether no node has taken calls for longer than patience lasts.
func (g *Gateway) forsaken(now time.Time) bool {
	return !g.lonely.IsZero() && now.Sub(g.lonely) >= g.cfg.Patience
}

// giveUp answers all calls that wait.
func (g *Gateway) giveUp() {
	err := g.errForsaken()
	fail := func(c *call) {
		g.unwait(c)
		c.granted <- grant{err: err}
	}
	for _, q := range []*turns{&g.shared, &g.openings, &g.suspects} {
		for c := q.pop(); c != nil; c = q.pop() {
			fail(c)
		}
	}
}

// CheckNodes names every address of a configuration that is none.
func CheckNodes(addresses []string) error {
	_, err := parseAddresses(addresses)
	return err
}

// parseAddresses checks addresses of the configuration, which may be Unix sockets.
func parseAddresses(texts []string) ([]string, error) {
	var errs []error
	addresses := make([]string, 0, len(texts))
	for _, text := range texts {
		address, err := text, error(nil)
		if !strings.HasPrefix(text, httpapi.UnixPrefix) {
			address, err = parseAddress(text)
		}
		addresses, errs = append(addresses, address), append(errs, err)
	}
	return addresses, errors.Join(errs...)
}

// parseAddress returns the one form of a node's address: host:port, or https://
// before it. Messages do not repeat what could be a password.
func parseAddress(text string) (string, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	if err != nil {
		return "", errors.New("node address: not a URL")
	}
	switch {
	case u.User != nil:
		return "", fmt.Errorf("node address %s: holds credentials; the token comes from TEMPER_SANDBOX_TOKEN", u.Host)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("node address %s: scheme %s is neither http nor https", u.Host, u.Scheme)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("node address %s: only host and port are expected", u.Host)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("node address %q: host:port is expected", u.Host)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("node address %s: names no machine", u.Host)
	}
	address := net.JoinHostPort(strings.ToLower(host), port)
	if u.Scheme == "https" {
		return "https://" + address, nil
	}
	return address, nil
}
