package sampling

import (
	"time"

	"temper/internal/series"
)

// passCounter is an engine that counts its passes by the number of requests that each of
// them served, since its start.
type passCounter interface{ PassesByRows() []int64 }

// passesOf reads the counts of an engine; nil of one that does not count.
func passesOf(e Engine) []int64 {
	if c, ok := e.(passCounter); ok {
		return c.PassesByRows()
	}
	return nil
}

// passesSince are the passes of an engine after those before.
func passesSince(before []int64, e Engine) []int64 {
	now := passesOf(e)
	for i := range min(len(before), len(now)) {
		now[i] -= before[i]
	}
	for len(now) > 0 && now[len(now)-1] == 0 {
		now = now[:len(now)-1]
	}
	return now
}

// busy is what only the sampling itself knows of its time.
type busy struct {
	programs int64
	passes   []int64
}

// with adds it to what the machine has measured; nil where nobody measured.
func (b busy) with(m *series.Busy) []series.Busy {
	if m == nil {
		return nil
	}
	m.Programs, m.Passes = time.Duration(b.programs), b.passes
	return []series.Busy{*m}
}
