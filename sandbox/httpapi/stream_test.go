package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
)

// serveStreams returns the address of a server that speaks HTTP/2 too.
func serveStreams(t testing.TB, exec sandbox.Executor, cfg httpapi.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(httpapi.NewHandler(exec, cfg))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func dial(t testing.TB, address string, opts httpapi.Options) *httpapi.Stream {
	t.Helper()
	s, err := httpapi.Dial(context.Background(), address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStreamCarriesManyCalls(t *testing.T) {
	server := serveStreams(t, &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: req.Code}, nil
	}}, httpapi.Config{Load: func() httpapi.Load { return httpapi.Load{Slots: 7, Queue: 9} }})
	s := dial(t, server.URL, httpapi.Options{})
	if got, want := s.Load(), (httpapi.Load{Slots: 7, Queue: 9}); got != want {
		t.Errorf("got load %+v, want %+v", got, want)
	}
	var calls sync.WaitGroup
	for i := range 2000 {
		calls.Go(func() {
			code := fmt.Sprintf("print(%d)\n", i)
			res, err := s.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i), Code: code})
			if err != nil || res.Stdout != code || res.ID != fmt.Sprint(i) {
				t.Errorf("call %d: got %+v, %v", i, res, err)
			}
		})
	}
	calls.Wait()
}

var _ = errors.Is
var _ atomic.Int32
var _ = time.Now
