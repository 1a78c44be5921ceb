package export

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"temper/internal/run"
	"temper/internal/series"
)

// Frame is one picture of a run for a terminal.
type Frame struct {
	Entry   run.CatalogEntry
	Records []run.StepRecord // in order
	// Log are the newest lines of what else happened, oldest first.
	Log []string
	Now time.Time
}

// frameSeries are the curves of a picture.
var frameSeries = []struct{ name, label string }{
	{series.Reward, "reward"}, {series.ToolErrors, "tool errors"}, {series.Response, "length"}, {series.Entropy, "entropy"},
	{series.GradNorm, "grad norm"}, {series.Throughput, "tok/s"}, {series.StepSeconds, "seconds"},
}

// Lines returns the lines of the picture, height at most and none wider than width. Control
// characters in text of others do not reach the terminal.
func (f Frame) Lines(width, height int) []string {
	e := f.Entry
	out := []string{fmt.Sprintf("%s  %s  step %d/%d  %s", e.RunID, e.State, e.Step, e.NumSteps, e.Stage)}
	if !e.Updated.IsZero() && !e.Ended() {
		out[0] += "  newest entry " + Duration(max(0, f.Now.Sub(e.Updated))) + " ago"
	}
	if n := len(f.Records); n > 0 && !e.Ended() {
		out[0] += "  eta " + Duration(ETA(f.Records))
	}
	if why := cmp.Or(e.Reason, e.Trouble); why != "" {
		out = append(out, "! "+why)
	}
	out = append(out, "")
	if len(f.Records) == 0 {
		out = append(out, "no step has ended yet")
	}
	for _, s := range frameSeries {
		if line := f.curve(s.name, s.label, width); line != "" {
			out = append(out, line)
		}
	}
	out = append(out, "")
	if room := height - len(out); room > 0 {
		out = append(out, f.Log[max(0, len(f.Log)-room):]...)
	}
	out = out[:min(len(out), height)]
	for i := range out {
		out[i] = fit(Visible(out[i]), width)
	}
	return out
}

// curve is a series in one line: its name, its newest value, and bars of the last steps
// between the lowest and the highest of them. It is empty where no step has it.
func (f Frame) curve(name, label string, width int) string {
	const head = 24
	var values []float64
	for _, rec := range f.Records {
		if v, ok := rec.Metrics[name]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	values = values[max(0, len(values)-max(0, width-head)):]
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			low, high = min(low, v), max(high, v)
		}
	}
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	var b strings.Builder
	for _, v := range values {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			b.WriteByte('?')
		case high <= low:
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[int((v-low)/(high-low)*float64(len(levels)-1)+0.5)])
		}
	}
	return fmt.Sprintf("%-12s %10.4g %s", label, last, b.String())
}

// fit cuts a line to a width.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	letters := []rune(text)
	return string(letters[:max(0, width-1)]) + "~"
}
