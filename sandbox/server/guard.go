package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"

	"temper/sandbox/httpapi"
)

// pathPing is the health check of Code-Judge clients.
const pathPing = "/ping"

// guard refuses callers without permission. Health checks are open to all: they only show
// that the process lives.
func (s *Server) guard(next http.Handler) http.Handler {
	fromPage := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens := s.tokens(r.URL.Path)
		switch {
		case r.Method == http.MethodGet && isHealthCheck(r.URL.Path):
		case len(tokens) > 0:
			if !bears(r, tokens) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				deny(w, http.StatusUnauthorized, httpapi.CodeUnauthorized, "missing or wrong bearer token")
				return
			}
		case fromPage.Check(r) != nil || fromOtherSite(r) || !s.named(r.Host):
			deny(w, http.StatusForbidden, httpapi.CodeUnauthorized, "requests of web pages are refused: set a token to allow others than local programs")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromOtherSite reports whether a browser sends the request for a page of another site,
// reads included.
func fromOtherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	default:
		return true
	}
}

func isHealthCheck(path string) bool {
	return path == httpapi.PathHealth || path == httpapi.PathReady || path == pathPing
}

// tokens returns the accepted tokens for a path.
func (s *Server) tokens(path string) []string {
	if s.cfg.Tokens != nil {
		return s.cfg.Tokens(path)
	}
	if s.cfg.Token == "" {
		return nil
	}
	return []string{s.cfg.Token}
}

// bears reports whether a request carries one of tokens. It compares digests, so that the
// time reveals neither the text nor the length of a token. The letters of the scheme may
// have either case (RFC 9110, 11.1).
func bears(r *http.Request, tokens []string) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got := sha256.Sum256([]byte(token))
	found := 0
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return found == 1
}

// named reports whether a request addresses this server by an IP address or by the host
// name of its listener. A page whose host name resolves to this machine sends another name.
func (s *Server) named(host string) bool {
	if s.isUnix() || s.cfg.Insecure || host == "" {
		return true
	}
	host = hostname(host)
	return strings.EqualFold(host, "localhost") || strings.EqualFold(host, hostname(s.cfg.Listen)) || net.ParseIP(host) != nil
}

// hostname returns a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func deny(w http.ResponseWriter, status int, code httpapi.Code, message string) {
	body, err := json.Marshal(map[string]httpapi.Failure{"error": {Code: code, Message: message}})
	if err != nil { // cannot fail: two strings always encode
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // fails only when the caller has gone
}

// isNoise reports whether any client can cause an error.
func isNoise(message string) bool {
	return strings.HasPrefix(message, "http: TLS handshake error")
}

// WriteReady prints the line for which a supervisor or a script waits.
func WriteReady(w io.Writer, address string, more map[string]any) error {
	fields := map[string]any{"ready": true, "address": address}
	for key, value := range more {
		fields[key] = value
	}
	line, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
