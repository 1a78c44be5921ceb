package rolloutbench

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// heapWatch notes the most that the heap held.
type heapWatch struct {
	end, ended chan struct{}
	before     uint64
	live, all  uint64
}

// watchHeap begins to look at the heap, several times a second.
func watchHeap() *heapWatch {
	runtime.GC()
	w := &heapWatch{end: make(chan struct{}), ended: make(chan struct{})}
	w.before, _ = readHeap()
	go w.loop()
	return w
}

func (w *heapWatch) loop() {
	defer close(w.ended)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		live, all := readHeap()
		w.live, w.all = max(w.live, live), max(w.all, all)
		select {
		case <-w.end:
			return
		case <-tick.C:
		}
	}
}

// stop returns the peaks above what was in use before.
func (w *heapWatch) stop() (live, all int64) {
	close(w.end)
	<-w.ended
	above := func(v uint64) int64 { return int64(v) - int64(w.before) } //nolint:gosec // sizes of this machine
	return above(w.live), above(w.all)
}

func readHeap() (live, all uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}
