package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

func TestGateConforms(t *testing.T) {
	g := newCallGate(&sandboxtest.Fake{})
	if _, err := g.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if n := g.close(); n != 0 {
		t.Errorf("%d calls inside an idle gate", n)
	}
	if err := g.wait(t.Context()); err != nil {
		t.Errorf("wait at an empty gate: %v", err)
	}
	if _, err := g.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("call at a closed gate: %v, want unavailable", err)
	}
}

func TestGateWaitsForThoseInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		g := newCallGate(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			<-leave
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}})
		answers := make(chan error)
		for range 3 {
			go func() {
				_, err := g.Execute(context.Background(), sandbox.Request{})
				answers <- err
			}()
		}
		synctest.Wait()
		if g.draining() {
			t.Error("an open gate drains")
		}
		if n := g.close(); n != 3 || !g.draining() {
			t.Errorf("close found %d inside, want 3; draining is %t", n, g.draining())
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.wait(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait with calls inside: %v", err)
		}
		close(leave)
		for range 3 {
			if err := <-answers; err != nil {
				t.Errorf("a call inside: %v", err)
			}
		}
		if err := g.wait(t.Context()); err != nil {
			t.Errorf("wait when all have left: %v", err)
		}
	})
}
