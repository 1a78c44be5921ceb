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

// guard refuses those who may not call. Health checks are open to all: they only
// show that the process lives.
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

// fromOtherSite reports whether a browser says that a page of another site asks, also
// where it only reads.
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

// tokens are those of which a request for a path must bear one.
func (s *Server) tokens(path string) []string {
	if s.cfg.Tokens != nil {
		return s.cfg.Tokens(path)
	}
	if s.cfg.Token == "" {
		return nil
	}
	return []string{s.cfg.Token}
}

// bears compares digests, so that neither the text nor the length of a token shows in
// the time that it takes. The scheme's letters may be of either case (RFC 9110, 11.1).
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

// named reports whether a request means this server by an address or by the name
// that it listens at. A page that has its own name resolve to this machine calls
// with that name.
func (s *Server) named(host string) bool {
	if s.isUnix() || s.cfg.Insecure || host == "" {
		return true
	}
	host = hostname(host)
	return strings.EqualFold(host, "localhost") || strings.EqualFold(host, hostname(s.cfg.Listen)) || net.ParseIP(host) != nil
}

// hostname is a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func deny(w http.ResponseWriter, status int, code httpapi.Code, message string) {
	body, err := json.Marshal(map[string]httpapi.Failure{"error": {Code: code, Message: message}})
	if err != nil { // two strings always encode
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller has gone when this fails
}

// isNoise reports whether an error is one that strangers can cause.
func isNoise(message string) bool {
	return strings.HasPrefix(message, "http: TLS handshake error")
}

// WriteReady prints the one line that a supervisor or a script waits for.
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
