package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Fault is what a Proxy does to one request.
type Fault string

// The faults.
const (
	// CutRequest closes the connection in the middle of the request's body.
	CutRequest Fault = "cut request"
	// CutAnswer closes the connection in the middle of the answer's body.
	CutAnswer Fault = "cut answer"
	// LoseAnswer lets the server do its work and closes the connection.
	LoseAnswer Fault = "lose answer"
	// SlowDown answers 503 SlowDown in place of the server.
	SlowDown Fault = "slow down"
	// FlipRequest changes a byte of the request's body.
	FlipRequest Fault = "flip request"
	// FlipAnswer changes a byte of the answer's body.
	FlipAnswer Fault = "flip answer"
	// StallAnswer stops in the middle of the answer's body.
	StallAnswer Fault = "stall answer"
	// Skew answers 403 RequestTimeTooSkewed in place of the server.
	Skew Fault = "skew"
	// Full answers 507 in place of the server.
	Full Fault = "full"
)

// Proxy stands before a server and does something to the requests that a rule matches.
type Proxy struct {
	*httptest.Server
	target *url.URL
	mu     sync.Mutex
	rules  []rule
	hits   int
}

type rule struct {
	method, query string // "" matches all
	fault         Fault
	times         int
}

// NewProxy starts a proxy before the server.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: u}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// Inject makes the next requests of the method, whose query holds the key (or
// any, for ""), suffer the fault, times times.
func (p *Proxy) Inject(fault Fault, times int, method, query string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, rule{method, query, fault, times})
}

// Hits is how many requests suffered a fault so far.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// Heal forgets the rules.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

func (p *Proxy) faultOf(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.rules, func(rule rule) bool {
		return rule.times > 0 && (rule.method == "" || rule.method == r.Method) && (rule.query == "" || r.URL.Query().Has(rule.query))
	})
	if i < 0 {
		return ""
	}
	p.rules[i].times--
	p.hits++
	return p.rules[i].fault
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.faultOf(r)
	switch fault {
	case SlowDown:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
		return
	case Skew:
		refuse(w, r, http.StatusForbidden, "RequestTimeTooSkewed")
		return
	case Full:
		refuse(w, r, http.StatusInsufficientStorage, "NoSpaceLeftOnDevice")
		return
	case CutRequest:
		_, _ = io.CopyN(io.Discard, r.Body, max(r.ContentLength/2, 1))
		panic(http.ErrAbortHandler)
	case FlipRequest:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		flipBit(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	default: // the answer is harmed, or nothing
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(p.target)
			pr.Out.Host = pr.In.Host // it is signed
		},
		ModifyResponse: func(resp *http.Response) error { return damageResponse(r.Context(), fault, resp) },
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval:  -1,
	}
	proxy.ServeHTTP(w, r)
}

// refuse answers like an S3 server.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>by the proxy</Message></Error>`, code)
}

// damageResponse applies a fault to an answer.
func damageResponse(ctx context.Context, fault Fault, resp *http.Response) error {
	switch fault {
	case LoseAnswer:
		return fmt.Errorf("%s", fault)
	case CutAnswer:
		half := resp.ContentLength / 2
		resp.Body = &endingBody{ReadCloser: resp.Body, left: half, end: func() error { panic(http.ErrAbortHandler) }}
	case StallAnswer:
		half := resp.ContentLength / 2
		resp.Body = &endingBody{ReadCloser: resp.Body, left: half, end: func() error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			panic(http.ErrAbortHandler)
		}}
	case FlipAnswer:
		body, err := io.ReadAll(resp.Body)
		flipBit(body)
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return err
	default: // the request was harmed, or nothing
	}
	return nil
}

func flipBit(body []byte) {
	if len(body) > 0 {
		body[len(body)/2] ^= 1
	}
}

// endingBody gives some bytes and then what end says.
type endingBody struct {
	io.ReadCloser
	left int64
	end  func() error
}

func (b *endingBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.end()
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
