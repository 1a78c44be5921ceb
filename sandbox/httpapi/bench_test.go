package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// canned answers every request with the same 300 bytes and remembers nothing.
type canned struct{}

func (canned) Execute(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{
		ID: req.ID, Status: sandbox.StatusOK, Stdout: "0.7071067811865476\n" + strings.Repeat("x", 60),
		Usage: sandbox.Usage{Wall: 3 * time.Millisecond, CPU: 2 * time.Millisecond, PeakMemory: 9 << 20, Queue: time.Microsecond},
	}, nil
}

// cpu is what the process, client and server, has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTransport measures calls that execute nothing: 1 KB in, 300 bytes
// out, 512 in flight, client and server in one process.
func BenchmarkTransport(b *testing.B) {
	code := strings.Repeat("x = [i * i for i in range(10)]\n", 32)
	const inFlight, batch = 512, 64
	var last atomic.Int64
	request := func() sandbox.Request {
		return sandbox.Request{ID: fmt.Sprintf("call-%016d", last.Add(1)), Code: code, Limits: sandbox.Limits{Wall: 3 * time.Second}}
	}
	run := func(b *testing.B, workers, each int, call func(ctx context.Context) error) {
		var left atomic.Int64
		left.Store(int64(b.N))
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		b.ReportAllocs()
		b.ResetTimer()
		before := cpu(b)
		for range workers {
			all.Go(func() {
				for left.Add(-int64(each)) > -int64(each) {
					if err := call(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/call")
	}
	b.Run("execute", func(b *testing.B) {
		c := plainClient(b)
		run(b, inFlight, 1, func(ctx context.Context) error { _, err := c.Execute(ctx, request()); return err })
	})
	b.Run("batch", func(b *testing.B) {
		c := plainClient(b)
		run(b, inFlight/batch, batch, func(ctx context.Context) error {
			reqs := make([]sandbox.Request, batch)
			for i := range reqs {
				reqs[i] = request()
			}
			_, errs := c.ExecuteBatch(ctx, reqs)
			return errs[0]
		})
	})
	stream := func(b *testing.B, inFlight int) {
		s := dial(b, serveStreams(b, canned{}, httpapi.Config{}).URL, httpapi.Options{})
		run(b, inFlight, 1, func(ctx context.Context) error { _, err := s.Execute(ctx, request()); return err })
	}
	b.Run("stream", func(b *testing.B) { stream(b, inFlight) })
	b.Run("stream with 8 in flight", func(b *testing.B) { stream(b, 8) })
}

// plainClient returns a client of a server without HTTP/2.
func plainClient(b *testing.B) *httpapi.Client {
	c, _ := serve(b, canned{}, httpapi.Config{})
	return c
}
