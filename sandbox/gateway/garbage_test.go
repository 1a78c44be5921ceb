package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
)

const soundLoad = `{"load":{"slots":4,"busy":0,"waiting":0,"queue":64,"draining":false}}` + "\n"

// node serves streams over HTTP/2 without TLS.
func nodeServer(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// liar is a node that says load, reads a call and answers with what say returns.
func liar(load string, say func(w io.Writer, id string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != httpapi.PathStream {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, load) // a gateway that has gone is what the test is about
		_ = http.NewResponseController(w).Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			var f httpapi.ClientFrame
			if json.Unmarshal(line, &f) == nil && f.Call != nil {
				say(w, f.Call.ID)
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
}

// TestGarbageOfANodeHarmsNobody: whatever a node says, each call gets one answer, its
// own, of the node that works, or none that says something of its program.
func TestGarbageOfANodeHarmsNobody(t *testing.T) {
	answer := func(id, result, stdout string) string {
		return fmt.Sprintf(`{"id":%q,"result":{"id":%q,"status":"ok","stdout":%q,"exit_code":0,"usage":{}}}`+"\n", id, result, stdout)
	}
	write := func(text func(id string) string) func(io.Writer, string) {
		return func(w io.Writer, id string) { _, _ = io.WriteString(w, text(id)) } // as above
	}
	for name, bad := range map[string]http.Handler{
		"no JSON": liar(soundLoad, write(func(string) string { return "\x00\xff{]\n" })),
		"half a frame": liar(soundLoad, func(w io.Writer, id string) {
			_, _ = io.WriteString(w, answer(id, id, "forged")[:40])
			panic(http.ErrAbortHandler)
		}),
		"an empty frame":        liar(soundLoad, write(func(id string) string { return fmt.Sprintf(`{"id":%q}`+"\n", id) })),
		"the id of nobody":      liar(soundLoad, write(func(id string) string { return answer("nobody", id, "forged") + "x\n" })),
		"the result of another": liar(soundLoad, write(func(id string) string { return answer(id, "another", "forged") })),
		"wrong types":           liar(soundLoad, write(func(id string) string { return fmt.Sprintf(`{"id":%q,"result":[1]}`+"\n", id) })),
		"no base64": liar(soundLoad, write(func(id string) string {
			return fmt.Sprintf(`{"id":%q,"result":{"id":%q,"stdout_base64":"?"}}`+"\n", id, id)
		})),
		"a load that is NaN": liar(`{"load":{"slots":NaN}}`+"\n", nil),
		"a load below zero":  liar(`{"load":{"slots":-4,"queue":-1}}`+"\n", nil),
		"a load without end": liar(`{"load":{"slots":9223372036854775807,"queue":9223372036854775807}}`+"\n", write(func(string) string { return "x\n" })),
		"not even HTTP/2":    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "teapot", http.StatusTeapot) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := besideGood(t, bad)
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					req := sandbox.Request{ID: fmt.Sprint(i), Code: fmt.Sprintf("code of %d", i)}
					res, err := g.Execute(t.Context(), req)
					switch {
					case errors.Is(err, sandbox.ErrUnavailable): // it may be asked again
					case err != nil || res.ID != req.ID || res.Status != sandbox.StatusOK || res.Stdout != req.Code:
						t.Errorf("call %d: %+v, %v", i, res, err)
					}
				})
			}
			all.Wait()
			if load := g.Load(); load.Slots < 4 || load.Slots > 8 {
				t.Errorf("the gateway says %+v", load)
			}
		})
	}
}

// besideGood returns a gateway over a bad node and one that works.
func besideGood(t *testing.T, bad http.Handler) *gateway.Gateway {
	t.Helper()
	good := nodeServer(t, httpapi.NewHandler(echoExecutor{}, httpapi.Config{
		Load: func() httpapi.Load { return httpapi.Load{Slots: 4, Queue: 64} },
	}))
	g, err := gateway.New(t.Context(), gateway.Config{
		Dial: func(ctx context.Context, address string) (gateway.Link, error) {
			return httpapi.Dial(ctx, address, httpapi.Options{})
		},
		Nodes: []string{nodeServer(t, bad).URL, good.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

// echoExecutor answers with the code that it was given.
type echoExecutor struct{}

func (echoExecutor) Execute(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	time.Sleep(time.Millisecond)
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Code}, nil
}

// TestAnswerWithoutEndIsNotHeld: a node that sends a line without end loses its stream
// before the gateway has held more than the longest answer twice.
func TestAnswerWithoutEndIsNotHeld(t *testing.T) {
	t.Parallel()
	var most atomic.Int64 // of one line
	part := strings.Repeat("x", 1<<20)
	bad := liar(soundLoad, func(w io.Writer, _ string) {
		for sent := int64(0); ; {
			n, err := io.WriteString(w, part)
			sent += int64(n)
			for held := most.Load(); held < sent && !most.CompareAndSwap(held, sent); held = most.Load() {
			}
			if err != nil {
				return
			}
		}
	})
	g := besideGood(t, bad)
	for i := range 8 {
		req := sandbox.Request{ID: fmt.Sprint(i), Code: fmt.Sprint(i)}
		res, err := g.Execute(t.Context(), req)
		if err != nil || res.Stdout != req.Code {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
	if n := most.Load(); n > 256<<20 { // the longest answer, and what is on its way
		t.Errorf("%d MiB of a line were taken", n>>20)
	}
}
