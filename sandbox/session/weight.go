package session

import "temper/sandbox"

// What is held for a session and for a cell besides their texts, nearly: 65,536 sessions
// of 256 empty cells are a gigabyte.
const (
	sessionWeight = 1 << 10
	cellWeight    = 128
)

// held is what all histories take. mu is held.
func (m *Manager) held() int64 {
	return m.bytes + int64(m.cells)*cellWeight + int64(len(m.sessions))*sessionWeight
}

// weight is what the histories may grow by with req.
func weight(req sandbox.Request) int64 {
	n := len(req.Code) + len(req.Stdin) + len(req.Fixture) + (1+len(req.History))*cellWeight
	for _, texts := range [...][]string{req.History, req.HistoryStdin} {
		for _, text := range texts {
			n += len(text)
		}
	}
	return int64(n)
}

// mostThinned is how many sessions make room for one call.
const mostThinned = 64

// thin forgets sessions that rest, the oldest first, until the histories have room for a
// call. It returns their kernels, which the caller ends. mu is held.
func (m *Manager) thin(run string, weight int64) (victims []Kernel) {
	for range mostThinned {
		if m.held()+weight <= m.cfg.TotalBytes {
			break
		}
		oldest := m.oldest(run)
		if oldest == nil {
			break
		}
		if k := m.detach(oldest); k != nil {
			victims = append(victims, k)
		}
		m.forget(oldest)
		m.stats.Forgotten++
	}
	return victims
}
