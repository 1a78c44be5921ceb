package kernels

import (
	"sync"

	"temper/trainer/weights/hostmem"
)

// depths are the panel depths of the variants: the number of terms that the backend's
// kernel for large products adds in one chain.
var depths = map[Variant]int{AVX512: 192, AVX2: 128, Scalar: 128}

// variantOf is the variant of a choice in this process.
func variantOf(c Choice) Variant {
	if c == Portable && nativeVariant() == AVX512 {
		return AVX2
	}
	return nativeVariant()
}

// depthOf is the panel depth of a choice in this process.
func depthOf(c Choice) int {
	if c == Portable {
		return depths[AVX2]
	}
	return nativeDepth()
}

// Enter puts the kernels of a choice in force and waits until no computation with others
// is under way. The caller computes, or builds graphs, and then calls leave, once. Calls
// with the same choice run side by side. A goroutine must not enter twice.
//
// The backend has one set of kernels for a process, and asks for it in both building and
// executing a graph. Runs of both choices share a process, so their passes take turns.
// Where both choices are the same kernels, nobody waits.
func Enter(c Choice) (leave func()) {
	hostmem.GuardHeap()
	if variantOf(Portable) == nativeVariant() {
		return func() {}
	}
	turns.enter(c.orNative())
	return turns.leave
}

// PanelDepth is the depth of panels with the kernels in force. Call it between Enter and
// leave; elsewhere it is that of the native ones.
func PanelDepth() int {
	if variantOf(Portable) == nativeVariant() {
		return nativeDepth()
	}
	return depthOf(turns.choice())
}

// turns is the order in which this process computes. It is one, as the backend's hooks.
var turns = &choiceLock{current: Native, install: install}

// choiceLock lets in callers of one choice at a time.
type choiceLock struct {
	install func(Choice) // called while nothing computes

	mu      sync.Mutex
	current Choice
	inside  int
	// waiting are the callers of each choice that have to wait. A caller waits also for
	// the choice in force once somebody waits for the other, so nobody starves.
	waiting map[Choice]*queue
}

// queue are callers who go in together.
type queue struct {
	length int
	open   chan struct{} // closed when they go in
}

// enter returns when the caller is inside.
func (t *choiceLock) enter(c Choice) {
	t.mu.Lock()
	switch {
	case t.inside == 0: // then nobody waits
		t.change(c)
		t.inside = 1
	case c == t.current && len(t.waiting) == 0:
		t.inside++
	default:
		q := t.queue(c)
		q.length++
		t.mu.Unlock()
		<-q.open
		return
	}
	t.mu.Unlock()
}

// leave lets in those who wait for the other choice, when the last one leaves.
func (t *choiceLock) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside--; t.inside > 0 {
		return
	}
	next := Native
	if t.current == Native {
		next = Portable
	}
	q, ok := t.waiting[next]
	if !ok {
		return // and so nobody waits for the choice in force either
	}
	delete(t.waiting, next)
	t.change(next)
	t.inside = q.length
	close(q.open)
}

// queue returns the callers that wait for a choice.
func (t *choiceLock) queue(c Choice) *queue {
	if t.waiting == nil {
		t.waiting = map[Choice]*queue{}
	}
	if t.waiting[c] == nil {
		t.waiting[c] = &queue{open: make(chan struct{})}
	}
	return t.waiting[c]
}

// change puts the kernels of a choice in force.
func (t *choiceLock) change(c Choice) {
	if c != t.current {
		t.install(c)
		t.current = c
	}
}

// choice is the one in force.
func (t *choiceLock) choice() Choice {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}
