package proc

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 10

// Probe asks a process how it is. It holds no connection between questions, so
// that each finds the process that serves the address now.
type Probe struct {
	// Address is host:port, unix:/path or the URL of a server.
	Address string
	// Patience is how long a process that was there may stay silent before Alive reports
	// it; 0 is not at all.
	Patience time.Duration

	mu   sync.Mutex
	last time.Time // when it answered last
}

// Ready returns nil when the process can be used.
func (p *Probe) Ready(ctx context.Context) error {
	err := p.ask(ctx, PathReady)
	if err == nil {
		p.answered()
	}
	return err
}

// Alive returns nil when the process makes progress, or has done so within Patience.
func (p *Probe) Alive(ctx context.Context) error {
	err := p.ask(ctx, PathAlive)
	if err == nil {
		p.answered()
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if silent := time.Since(p.last); !p.last.IsZero() && silent < p.Patience {
		return nil
	} else if !p.last.IsZero() {
		return fmt.Errorf("no good answer for %v: %w", silent.Round(time.Second), err)
	}
	return err
}

func (p *Probe) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
}

// ask makes one request on a new connection.
func (p *Probe) ask(ctx context.Context, path string) error {
	_, err := Fetch(ctx, p.Address, path, maxAnswer)
	return err
}

// Fetch reads at most most bytes of the answer of a process at host:port, unix:/path or a
// URL, on a new connection.
func Fetch(ctx context.Context, address, path string, most int64) ([]byte, error) {
	url := address
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	if file, isUnix := strings.CutPrefix(address, UnixPrefix); isUnix {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			short, release, err := shorten(file)
			if err != nil {
				return nil, err
			}
			defer release()
			return (&net.Dialer{}).DialContext(ctx, "unix", short)
		}
	} else if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is read below
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w", address, problem(resp.Status, body))
	}
	return body, nil
}
