package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/metrics"
)

// BenchmarkWaitingCall reports what a call of 1 KiB costs while it waits: called
// directly, with the goroutine of its caller; and as it comes over a stream, through
// the window of the API and the recorder of the metrics.
func BenchmarkWaitingCall(b *testing.B) {
	const waiting = 45_000
	code := strings.Repeat("x", 1024)
	measure := func(b *testing.B, send func(ctx context.Context, g *gateway.Gateway, calls *sync.WaitGroup) error) {
		for b.Loop() {
			g, err := gateway.New(b.Context(), gateway.Config{Dial: (&fleet{}).dial})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var calls sync.WaitGroup
			before := memory()
			if err := send(ctx, g, &calls); err != nil {
				b.Fatal(err)
			}
			for g.Stats().Waiting < waiting {
				time.Sleep(time.Millisecond)
			}
			after := memory()
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/waiting, "heap-B/call")
			b.ReportMetric(float64(after.StackInuse-before.StackInuse)/waiting, "stack-B/call")
			g.Abort()
			cancel()
			calls.Wait()
		}
	}
	b.Run("direct", func(b *testing.B) {
		measure(b, func(ctx context.Context, g *gateway.Gateway, calls *sync.WaitGroup) error {
			for i := range waiting {
				calls.Go(func() {
					_, _ = g.Execute(ctx, sandbox.Request{ID: fmt.Sprint(i), Code: strings.Clone(code), Run: "run"})
				})
			}
			return nil
		})
	})
	b.Run("stream", func(b *testing.B) {
		measure(b, func(ctx context.Context, g *gateway.Gateway, calls *sync.WaitGroup) error {
			recorder := metrics.New(metrics.Sources{}, nil)
			handler := httpapi.NewHandler(metrics.Wrap(g, recorder), httpapi.Config{})
			body, lines := io.Pipe()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, httpapi.PathStream, body)
			r.ProtoMajor, r.Proto = 2, "HTTP/2.0"
			calls.Go(func() {
				handler.ServeHTTP(&unread{}, r)
				_ = body.Close() // a stream that ended early fails the writer
			})
			for i := range waiting {
				if _, err := fmt.Fprintf(lines, `{"call":{"id":"%d","code":"%s","run":"run"}}`+"\n", i, code); err != nil {
					return err
				}
			}
			calls.Go(func() {
				<-ctx.Done()
				_ = lines.Close()
			})
			return nil
		})
	})
}

// unread is a response that nobody reads.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header {
	if u.header == nil {
		u.header = make(http.Header)
	}
	return u.header
}
func (*unread) WriteHeader(int)             {}
func (*unread) Flush()                      {}
func (*unread) Write(p []byte) (int, error) { return len(p), nil }

func memory() runtime.MemStats {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m
}

// BenchmarkExecute is the gateway's part of a call: admission, a turn, a node.
func BenchmarkExecute(b *testing.B) {
	f := &fleet{}
	f.add("a:1", 64).answer = echo
	f.add("b:1", 64).answer = echo
	g, err := gateway.New(b.Context(), gateway.Config{Dial: f.dial, Nodes: []string{"a:1", "b:1"}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(256)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Execute(b.Context(), sandbox.Request{ID: "x", Run: "run"}); err != nil {
				b.Error(err)
			}
		}
	})
	g.Abort()
}
