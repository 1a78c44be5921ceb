package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestADrainIsSaidBeforeTheNextSecond counts the words of a server in its own time.
func TestADrainIsSaidBeforeTheNextSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var load Load
		s := &serverStream{
			h: newHandler(&held{}, Config{Load: func() Load {
				mu.Lock()
				defer mu.Unlock()
				return load
			}}),
			out: newOutbox(maxUnsent), ctl: http.NewResponseController(httptest.NewRecorder()), calls: make(map[string]*pendingCall),
		}
		ctx, end := context.WithCancel(t.Context())
		var reporter sync.WaitGroup
		reporter.Go(func() { s.report(ctx, Load{}) })
		during := func(d time.Duration) (said []string) {
			time.Sleep(d)
			synctest.Wait()
			s.out.mu.Lock()
			defer s.out.mu.Unlock()
			said = strings.Fields(string(s.out.pending))
			s.out.pending = s.out.pending[:0]
			return said
		}
		if said := during(3 * time.Second); len(said) != 3 {
			t.Errorf("in three seconds: %q, want a load in each", said)
		}
		mu.Lock()
		load.Draining = true
		mu.Unlock()
		if said := during(100 * time.Millisecond); len(said) != 1 || !strings.Contains(said[0], "draining") {
			t.Errorf("in a tenth of a second of the drain: %q, want that it drains", said)
		}
		if said := during(900 * time.Millisecond); len(said) != 1 {
			t.Errorf("in the rest of the second: %q, want the load of every second", said)
		}
		end()
		reporter.Wait()
	})
}
