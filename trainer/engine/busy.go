package engine

import "sync/atomic"

// maxBusyRows bounds the histogram of busy rows: passes that serve more count as it.
const maxBusyRows = 1024

// busyRows counts passes by the number of requests that each of them served. The row of
// a request that feeds a part of its prompt is as busy as one that samples.
type busyRows struct{ passes [maxBusyRows + 1]atomic.Int64 }

// add counts a pass that serves so many requests.
func (b *busyRows) add(requests int) { b.passes[min(requests, maxBusyRows)].Add(1) }

// PassesByRows counts the passes since the start by the number of requests that each of
// them served, from 0 on, over all shards.
func (e *Engine) PassesByRows() []int64 {
	var out []int64
	for _, s := range e.shards {
		for i := range s.stats.busy.passes {
			n := s.stats.busy.passes[i].Load()
			if n == 0 {
				continue
			}
			for len(out) <= i {
				out = append(out, 0)
			}
			out[i] += n
		}
	}
	return out
}
