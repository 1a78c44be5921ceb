package runclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"temper/internal/config"
)

// TestPagesWaitTogether: all that ask a server which does not answer wait as long as one.
func TestPagesWaitTogether(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	process := config.DefaultProcess()
	process.TemporalAddress = listener.Addr().String()
	s := NewSteerer(&process, nil)
	defer s.Close()
	begin := time.Now()
	var asking sync.WaitGroup
	for range 6 {
		asking.Go(func() {
			if _, err := s.Status(t.Context(), "demo"); err == nil {
				t.Error("a server that says nothing has answered")
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Status(gone, "demo"); !errors.Is(err, context.Canceled) {
		t.Errorf("a page that was closed: %v", err)
	}
	asking.Wait()
	if took := time.Since(begin); took > 3*connectTime {
		t.Errorf("the last one waited for %v", took)
	}
}
