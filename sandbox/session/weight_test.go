package session_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"temper/sandbox"
	"temper/sandbox/session"
)

// TestEmptyCellsHaveAWeight: 300 sessions of 255 empty cells hold no text at all, and
// 8 MiB. The oldest make room, and no call is refused.
func TestEmptyCellsHaveAWeight(t *testing.T) {
	synctest.Test(t, emptyCells) // a fake kernel takes time for each cell
}

func emptyCells(t *testing.T) {
	const most = 2 << 20
	m := newManager(t, &host{}, session.Config{TotalBytes: most, MaxKernels: 4})
	live := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := live()
	history := make([]string, 255)
	for i := range 300 {
		if _, err := m.Execute(t.Context(), sandbox.Request{Session: fmt.Sprint(i), History: history}); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.Bytes > most || s.Sessions < 20 || s.Forgotten == 0 {
		t.Errorf("got %+v", s)
	}
	if grown := live() - before; grown > 2*most {
		t.Errorf("%d KiB are held, above twice the limit of %d", grown>>10, most>>10)
	}
}

// TestHistoriesOfSessionsInUseAreNotForgotten: where all of them run, a new one has to
// come back.
func TestHistoriesOfSessionsInUseAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{TotalBytes: 8 << 10})
		long := strings.Repeat("x", 3<<10)
		exec(t, m, "a", long)
		_, err := m.Execute(t.Context(), sandbox.Request{Session: "b", Code: long + long + long})
		if !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("a cell that has no room: %v", err)
		}
		exec(t, m, "b", "y") // a rests, so it may go
		exec(t, m, "b", long)
		if s := m.Stats(); s.Bytes > 8<<10 {
			t.Errorf("got %+v", s)
		}
		shows(t, m, "b", "y "+long)
	})
}
