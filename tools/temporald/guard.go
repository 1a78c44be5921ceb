package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// guard stands before everything that a browser can reach. Nobody logs in here,
// so a page of another site must not be able to pass for one of ours: by DNS
// rebinding it would read runs, by a form or a fetch it would steer them.
//
// It lets a request in only under a loopback name, the address at which the
// connection arrived, or a name of --ui-host. A request that may change
// something must also come from a page of the same host, or from no page.
type guard struct {
	hosts []string // of --ui-host, as bareHost writes them
	next  http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if reason := g.refusal(r); reason != "" {
		http.Error(w, reason, http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// refusal is the line that the client gets, empty for a request that may pass.
func (g guard) refusal(r *http.Request) string {
	if host := bareHost(r.Host); !g.serves(host, r) {
		return fmt.Sprintf("host %q is not served here: use localhost, or start the server with --ui-host %s (TEMPER_UI_HOST for temper up)", r.Host, host)
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return ""
	}
	for _, origin := range r.Header.Values("Origin") {
		if !g.trusts(origin, r) {
			return fmt.Sprintf("%s from a page of %q is refused at host %q: use the page of this server, or start the server with --ui-host", r.Method, origin, r.Host)
		}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return fmt.Sprintf("%s from a page of another site is refused at host %q: use the page of this server", r.Method, r.Host)
	}
	return ""
}

// serves reports whether the server is known by this name. An address is safe
// where the connection really arrived at it: rebinding gives a page a name, and
// browsers send that name.
func (g guard) serves(host string, r *http.Request) bool {
	if host == "localhost" || g.lists(host) {
		return true
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

// trusts reports whether a page of the origin may change something: one that
// this server has served itself, also through a proxy that calls it by another name.
func (g guard) trusts(origin string, r *http.Request) bool {
	page, err := url.Parse(origin)
	if err != nil || page.Host == "" {
		return false // "null" too: a file or a sandboxed frame
	}
	return strings.EqualFold(page.Host, r.Host) || g.lists(bareHost(page.Host))
}

func (g guard) lists(host string) bool {
	for _, name := range g.hosts {
		if name == host {
			return true
		}
	}
	return false
}

// bareHost is the name or address in host, host:port or [address]:port, in the
// one form in which hosts are compared.
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

// hostList is a flag that may be given several times, each with one host or
// several between commas.
type hostList []string

func (l *hostList) String() string { return strings.Join(*l, ",") }

func (l *hostList) Set(text string) error {
	for _, host := range strings.Split(text, ",") {
		host = strings.TrimSpace(host)
		if host == "" {
			continue
		}
		bare := bareHost(host)
		addr, err := netip.ParseAddr(bare)
		if err == nil && addr.IsUnspecified() {
			continue // any address of this machine, which serves lets in anyway
		}
		if err != nil && !isHostName(bare) {
			return fmt.Errorf("%q is not the name or the address of a host, such as temper.example.org", host)
		}
		*l = append(*l, bare)
	}
	return nil
}

// isHostName reports whether a browser can send the text as a host. A pattern
// or a URL would match nothing.
func isHostName(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	for _, c := range text {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-._", c) {
			return false
		}
	}
	return true
}
