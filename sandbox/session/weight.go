package session

import "temper/sandbox"

// Estimated bytes of a session and of a cell besides their texts: 65,536 sessions of 256
// empty cells take a gigabyte.
const (
	sessionWeight = 1 << 10
	cellWeight    = 128
)

// held returns the bytes of all histories. mu is held.
func (t *table) held() int64 {
	return t.bytes + int64(t.cells)*cellWeight + int64(len(t.sessions))*sessionWeight
}

// weight returns the bytes by which req may grow the histories.
func weight(req sandbox.Request) int64 {
	n := len(req.Code) + len(req.Stdin) + len(req.Fixture) + (1+len(req.History))*cellWeight
	for _, texts := range [...][]string{req.History, req.HistoryStdin} {
		for _, text := range texts {
			n += len(text)
		}
	}
	return int64(n)
}

// maxEvicted bounds the sessions that one call may evict.
const maxEvicted = 64

// evictHistories forgets inactive sessions, oldest first, until the histories have room for
// weight. It returns their kernels for the caller to end. mu is held.
func (t *table) evictHistories(run string, weight int64) (victims []Kernel) {
	for range maxEvicted {
		if t.held()+weight <= t.cfg.TotalBytes {
			break
		}
		oldest := t.oldest(run)
		if oldest == nil {
			break
		}
		if k := t.detach(oldest); k != nil {
			victims = append(victims, k)
		}
		t.forget(oldest)
		t.stats.Forgotten++
	}
	return victims
}
