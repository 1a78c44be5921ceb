package kernels

import (
	"sync"

	"temper/trainer/weights/hostmem"
)

// depths are the panel depths of the variants: the number of terms that the backend's kernel
// for large products adds in one chain.
var depths = map[Variant]int{AVX512: 192, AVX2: 128, Scalar: 128}

// variantOf returns the variant of a choice in this process.
func variantOf(c Choice) Variant {
	if c == Portable && nativeVariant() == AVX512 {
		return AVX2
	}
	return nativeVariant()
}

// depthOf returns the panel depth of a choice in this process.
func depthOf(c Choice) int {
	if c == Portable {
		return depths[AVX2]
	}
	return nativeDepth()
}

// Enter installs the kernels of a choice, after it waited for the computations with other
// kernels. The caller computes, or builds graphs, and then calls leave once. Callers with the
// same choice run concurrently. A goroutine must not enter twice.
//
// The backend has one set of kernels in a process, and uses it both to build and to execute a
// graph. Runs of both choices share a process, so their passes take turns. Enter never waits
// when both choices are the same kernels.
func Enter(c Choice) (leave func()) {
	hostmem.GuardHeap()
	if variantOf(Portable) == nativeVariant() {
		return func() {}
	}
	turns.enter(c.orNative())
	return turns.leave
}

// PanelDepth returns the depth of panels with the installed kernels. Call it between Enter and
// leave; elsewhere it is the depth of the native ones.
func PanelDepth() int {
	if variantOf(Portable) == nativeVariant() {
		return nativeDepth()
	}
	return depthOf(turns.choice())
}

// turns orders the computations of this process, whose backends share one set of kernels.
var turns = &choiceLock{current: Native, install: install}

// choiceLock admits callers of one choice at a time.
type choiceLock struct {
	install func(Choice) // called while nothing computes

	mu      sync.Mutex
	current Choice
	inside  int
	// waiting are the callers of each choice that wait. When a caller of the other choice
	// waits, callers of the current choice wait, too, so that none starves.
	waiting map[Choice]*queue
}

// queue are callers that are admitted together.
type queue struct {
	length int
	open   chan struct{} // closed to admit them
}

// enter returns when the caller is admitted.
func (t *choiceLock) enter(c Choice) {
	t.mu.Lock()
	switch {
	case t.inside == 0: // then no caller waits
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

// leave admits the callers of the other choice when the last caller leaves.
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
		return // so no caller waits for the current choice
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

// change installs the kernels of a choice.
func (t *choiceLock) change(c Choice) {
	if c != t.current {
		t.install(c)
		t.current = c
	}
}

// choice returns the installed one.
func (t *choiceLock) choice() Choice {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}
