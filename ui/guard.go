package ui

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// policy is the Content-Security-Policy of every answer: the page has no script, style
// or connection but its own, and nobody may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

const (
	// maxBody bounds the body of a request.
	maxBody = 256 << 10
	// answerTime bounds how long a client may take for an answer; streams have a bound for
	// each event.
	answerTime = time.Minute
)

// guard stands before all that a browser can reach. It lets a request in only under a
// loopback name, the address at which it arrived or a name of Hosts, so that a page whose
// name was made to resolve to this machine reads nothing. What may change something must
// come from a page of this server, or from no page.
func (s *Server) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if !s.servesHost(r) {
			fail(w, http.StatusForbidden, fmt.Sprintf("host %q is not served here: use localhost, or start the dashboard with --host %s", r.Host, bareHost(r.Host)))
			return
		}
		if !s.fromOwnPage(r) || cross.Check(r) != nil {
			fail(w, http.StatusForbidden, fmt.Sprintf("a request from a page of another site (%s) is refused", brief(r.Header.Get("Origin"))))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		// A connection that cannot have a deadline is one of a test.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		next.ServeHTTP(w, r)
	})
}

// servesHost reports whether the server is known by the name of the request. An address
// is safe where the connection really arrived at it: rebinding gives a page a name.
func (s *Server) servesHost(r *http.Request) bool {
	host := bareHost(r.Host)
	if host == "localhost" {
		return true
	}
	for _, name := range s.Hosts {
		if bareHost(name) == host {
			return true
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap() == addr
}

// fromOwnPage refuses the pages of other sites also where they only read.
func (s *Server) fromOwnPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	page, err := url.Parse(origin)
	return err == nil && page.Host != "" && strings.EqualFold(page.Host, r.Host)
}

// bareHost is the name or address in host, host:port or [address]:port, in the one
// form in which hosts are compared.
func bareHost(hostport string) string {
	host, port, err := net.SplitHostPort(hostport)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// failures bounds how many wrong tokens are looked at.
type failures struct {
	mu    sync.Mutex
	since time.Time
	num   int
}

// maxFailures is how many wrong tokens a second may have.
const maxFailures = 5

// tooMany counts a failure and reports whether the second has had its share.
func (f *failures) tooMany(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= time.Second {
		f.since, f.num = now, 0
	}
	f.num++
	return f.num > maxFailures
}

// admit checks the token of a request. Errors: a problem for the client.
func (s *Server) admit(r *http.Request) error {
	if s.Token == "" {
		return problem{http.StatusForbidden, "this dashboard has no token, so that it only reads: start it with one (TEMPER_UI_TOKEN)"}
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok && subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1 {
		return nil
	}
	if s.fails.tooMany(s.Now()) {
		return problem{http.StatusTooManyRequests, "too many wrong tokens: wait a second"}
	}
	if !ok {
		return problem{http.StatusUnauthorized, "this needs the token: open the address that the start of the dashboard has printed, or send Authorization: Bearer TOKEN"}
	}
	return problem{http.StatusUnauthorized, "the token is wrong: it is in the file ui.token of the service's home"}
}

// brief is a text of a client as a message may repeat it.
func brief(text string) string {
	return strconv.QuoteToASCII(text[:min(len(text), 100)])
}
