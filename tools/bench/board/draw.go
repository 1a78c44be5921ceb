package board

import (
	"fmt"

	"temper/tools/bench/picture"
)

// panels are what the picture shows: calls a core for each program, memory, probes.
func (r Report) panels() []picture.Panel {
	var out []picture.Panel
	for _, row := range r.Rows {
		title := row.Program + ": calls a second that one core can do (more is better)"
		if len(out) == 0 || out[len(out)-1].Title != title {
			out = append(out, picture.Panel{Title: title})
		}
		last := &out[len(out)-1]
		last.Bars = append(last.Bars, picture.Bar{Label: row.Way, Value: row.PerCore, Text: number(row.PerCore), Ours: len(last.Bars) == 0})
	}
	memory, held := picture.Panel{Title: "memory of one that waits (less is better)"}, picture.Panel{Title: fmt.Sprintf("attempts that are held, of %d", len(r.Probes))}
	for _, w := range r.Ways {
		if w.Missing != "" {
			continue
		}
		mib := float64(w.Idle) / (1 << 20)
		memory.Bars = append(memory.Bars, picture.Bar{Label: w.Name, Value: mib, Text: fmt.Sprintf("%.1f MiB, %s", mib, w.Unit), Ours: len(memory.Bars) == 0})
		held.Bars = append(held.Bars, picture.Bar{Label: w.Name, Value: float64(len(w.Held)), Text: fmt.Sprint(len(w.Held)), Ours: len(held.Bars) == 0})
	}
	return append(out, memory, held)
}

// PNG draws the report.
func (r Report) PNG() ([]byte, error) { return picture.PNG(r.headline(), r.panels()) }
