package ui

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// policy is the Content-Security-Policy of every answer: scripts, styles and connections of
// this server only, and no frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

const (
	// maxBody bounds the body of a request.
	maxBody = 256 << 10
	// answerTime bounds how long a client may take to read an answer; eventTime bounds each
	// event of a stream.
	answerTime = time.Minute
)

// access decides which requests are served: by host, by origin and by token.
type access struct {
	token          string
	readNeedsToken bool
	hosts          []string
	now            func() time.Time
	log            *slog.Logger
	failures       failures
}

// guard checks every request. It admits requests for a loopback name, for the address at
// which they arrived or for a name of Config.Hosts, so that DNS rebinding reads nothing. A
// request that changes something must come from a page of this server or from no page.
func (a *access) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if !a.servesHost(r) {
			fail(w, http.StatusForbidden, fmt.Sprintf("host %q is not served here: use localhost, or start the dashboard with --host %s", r.Host, bareHost(r.Host)))
			return
		}
		if !a.fromOwnPage(r) || cross.Check(r) != nil {
			fail(w, http.StatusForbidden, fmt.Sprintf("a request from a page of another site (%s) is refused", brief(r.Header.Get("Origin"))))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		// Only connections of tests have no deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		next.ServeHTTP(w, r)
	})
}

// servesHost reports whether the host of a request names this server. An address is safe
// where the connection arrived at it: rebinding needs a name.
func (a *access) servesHost(r *http.Request) bool {
	host := bareHost(r.Host)
	if host == "localhost" {
		return true
	}
	for _, name := range a.hosts {
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

// fromOwnPage reports whether a request comes from a page of this server or from no page.
func (a *access) fromOwnPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	page, err := url.Parse(origin)
	return err == nil && page.Host != "" && strings.EqualFold(page.Host, r.Host)
}

// bareHost returns the canonical name or address in host, host:port or [address]:port.
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

// failures limits the rate of wrong tokens.
type failures struct {
	mu    sync.Mutex
	since time.Time
	num   int
}

// maxFailures is the number of wrong tokens a second.
const maxFailures = 5

// tooMany counts a failure and reports whether this second has too many.
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
func (a *access) admit(r *http.Request) error {
	if a.token == "" {
		return problem{http.StatusForbidden, "this dashboard has no token, so that it only reads: start it with one (TEMPER_UI_TOKEN)"}
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok && subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) == 1 {
		return nil
	}
	if a.failures.tooMany(a.now()) {
		return problem{http.StatusTooManyRequests, "too many wrong tokens: wait a second"}
	}
	if !ok {
		return problem{http.StatusUnauthorized, "this needs the token: open the address that the start of the dashboard has printed, or send Authorization: Bearer TOKEN"}
	}
	return problem{http.StatusUnauthorized, "the token is wrong: it is in the file ui.token of the service's home"}
}

// brief quotes a client's text, cut to 100 bytes, for a message.
func brief(text string) string {
	return strconv.QuoteToASCII(text[:min(len(text), 100)])
}
