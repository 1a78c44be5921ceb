package gateway_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"temper/sandbox"
	"temper/sandbox/gateway"
)

// BenchmarkWaitingCall reports what a call of 1 KiB costs while it waits, with
// the goroutine of its caller.
func BenchmarkWaitingCall(b *testing.B) {
	const waiting = 45_000
	for b.Loop() {
		g, err := gateway.New(b.Context(), gateway.Config{Dial: (&fleet{}).dial})
		if err != nil {
			b.Fatal(err)
		}
		var calls sync.WaitGroup
		before := memory()
		for i := range waiting {
			calls.Go(func() {
				_, _ = g.Execute(b.Context(), sandbox.Request{ID: fmt.Sprint(i), Code: strings.Repeat("x", 1024), Run: "run"})
			})
		}
		for g.Stats().Waiting < waiting {
			runtime.Gosched()
		}
		after := memory()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/waiting, "heap-B/call")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/waiting, "stack-B/call")
		g.Abort()
		calls.Wait()
	}
}

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
