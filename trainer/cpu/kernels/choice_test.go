package kernels

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestChoiceLockKeepsChoicesApart: many callers of both choices never meet inside, and
// all of them get in.
func TestChoiceLockKeepsChoicesApart(t *testing.T) {
	var inside [2]atomic.Int32
	var changes int
	current := Native
	gate := &choiceLock{current: Native, install: func(c Choice) {
		if n, p := inside[0].Load(), inside[1].Load(); n != 0 || p != 0 {
			t.Errorf("kernels change with %d native and %d portable callers inside", n, p)
		}
		current = c
		changes++
	}}
	var all sync.WaitGroup
	for i := range 16 {
		c, own := Native, i%2
		if own == 1 {
			c = Portable
		}
		all.Go(func() {
			for range 500 {
				gate.enter(c)
				inside[own].Add(1)
				if n := inside[1-own].Load(); n != 0 {
					t.Errorf("%s caller meets %d of the other choice", c, n)
				}
				if current != c {
					t.Errorf("%s caller with %s kernels in force", c, current)
				}
				inside[own].Add(-1)
				gate.leave()
			}
		})
	}
	all.Wait()
	if gate.inside != 0 || len(gate.waiting) != 0 || changes == 0 {
		t.Errorf("%d inside, %d queues, %d changes at the end", gate.inside, len(gate.waiting), changes)
	}
}

// TestChoiceLockStarvesNobody: a caller of the other choice gets in between two callers
// of the choice in force, of whom one is always inside.
func TestChoiceLockStarvesNobody(t *testing.T) {
	gate := &choiceLock{current: Native, install: func(Choice) {}}
	gate.enter(Native)
	entered := make(chan struct{})
	go func() {
		gate.enter(Portable)
		close(entered)
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		gate.mu.Lock()
		waits = len(gate.waiting) == 1
		gate.mu.Unlock()
	}
	late := make(chan struct{})
	go func() {
		gate.enter(Native)
		close(late)
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		gate.mu.Lock()
		waits = len(gate.waiting) == 2
		gate.mu.Unlock()
	}
	gate.leave()
	<-entered
	select {
	case <-late:
		t.Error("a caller of the choice in force overtook one who waited for the other")
	default:
	}
	gate.leave()
	<-late
	gate.leave()
}

// TestSwitchesThatMatter: what changes the order of sums is recorded and refused with
// portable kernels; what sizes blocks in caches is neither.
func TestSwitchesThatMatter(t *testing.T) {
	environ := []string{"PATH=/bin", "GOMLX_GO_AVX2_KC=64", "GOMLX_GO_SIMD_AVX512=0", "GOMLX_GO_AVX512_MC=16", "GOMLX_GO_AVX512_KC=8"}
	got := switches(environ)
	if len(got) != 2 || got[0] != "GOMLX_GO_AVX2_KC=64" || got[1] != "GOMLX_GO_AVX512_KC=8" {
		t.Errorf("switches %q", got)
	}
	if nativeVariant() == Scalar {
		if err := checkPortable(nil); err == nil {
			t.Error("portable kernels without SIMD are not refused")
		}
		return
	}
	if err := checkPortable(environ); err == nil {
		t.Error("portable kernels with panels of another depth are not refused")
	}
	if err := checkPortable([]string{"GOMLX_GO_AVX512_KC=8"}); err != nil {
		t.Error(err)
	}
}
