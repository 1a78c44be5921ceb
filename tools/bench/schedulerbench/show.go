package schedulerbench

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"temper/tools/bench/picture"
)

// Table shows results as text, with the bound that they are measured against.
func Table(results []Result) string {
	var out strings.Builder
	name := ""
	for _, r := range results {
		if r.Workload != name {
			name = r.Workload
			b := r.Bound
			fmt.Fprintf(&out, "%s: bound %.1f s an engine (reads %.1f, products %.1f, prefill %.1f, passes %.1f; longest alone %.1f)\n",
				name, b.Seconds(), b.Reads, b.Products, b.Prefill, b.Passes, b.Longest)
			fmt.Fprintf(&out, "  %-32s %8s %15s %10s %11s %12s %6s\n", "policy", "x bound", "least to most", "preempted", "recomputed", "moves/1,000", "busy")
		}
		fmt.Fprintf(&out, "  %-32s %8.3f %15s %9.3f%% %10.2f%% %12.1f %5.1f%%\n", r.Contender, r.Ratio, fmt.Sprintf("%.3f to %.3f", r.Least, r.Most),
			100*r.Preempted, 100*r.Recomputed, r.Moves, 100*r.Busy)
	}
	return out.String()
}

// find is the result of a contender in a workload.
func find(results []Result, workload, contender string) (Result, bool) {
	for _, r := range results {
		if r.Workload == workload && r.Contender == contender {
			return r, true
		}
	}
	return Result{}, false
}

// Goals shows how expected need stands beside the others.
func Goals(results []Result) string {
	var out strings.Builder
	for _, name := range workloadsOf(results) {
		e, ok := find(results, name, expectedName)
		if !ok {
			continue
		}
		fmt.Fprintf(&out, "%s: expected need takes", name)
		for _, c := range []string{oracleName, "worst case, coefficient 1", "static split, tools in lockstep", "static split"} {
			if r, ok := find(results, name, c); ok {
				fmt.Fprintf(&out, " %.3f of %s;", e.Seconds/r.Seconds, c)
			}
		}
		if c, ok := find(results, name, continuousName); ok {
			fmt.Fprintf(&out, " %.2f times as long as with staleness 1", e.Ratio/c.Ratio)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

func workloadsOf(results []Result) []string {
	var names []string
	for _, r := range results {
		if len(names) == 0 || names[len(names)-1] != r.Workload {
			names = append(names, r.Workload)
		}
	}
	return names
}

// Order names the contenders of a workload from the fastest to the slowest.
func Order(results []Result, workload string) []string {
	var sorted []Result
	for _, r := range results {
		if r.Workload != workload {
			continue
		}
		at := len(sorted)
		for at > 0 && sorted[at-1].Ratio > r.Ratio {
			at--
		}
		sorted = append(sorted[:at], append([]Result{r}, sorted[at:]...)...)
	}
	var names []string
	for _, r := range sorted {
		names = append(names, r.Contender)
	}
	return names
}

const (
	plotWidth = 900
	barHeight = 20
	labelSide = 250
	barSide   = 580
)

// Plot draws the results as bars over the bound, in SVG.
func Plot(results []Result) []byte {
	most := 1.0
	for _, r := range results {
		most = max(most, r.Most)
	}
	height := 30 + len(results)*barHeight + len(workloadsOf(results))*40
	x := func(ratio float64) float64 { return labelSide + ratio/most*barSide }
	var buf bytes.Buffer
	fmt.Fprintf(&buf, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&buf, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	y, name := 10, ""
	for _, r := range results {
		if r.Workload != name {
			name = r.Workload
			y += 30
			fmt.Fprintf(&buf, `<text x="10" y="%d" font-weight="bold">%s: time of a step over the bound of %.0f s</text>`+"\n", y, html.EscapeString(name), r.Bound.Seconds())
			y += 10
		}
		colour := "#7570b3"
		switch {
		case strings.HasPrefix(r.Contender, expectedName):
			colour = "#1b9e77"
		case r.Contender == oracleName:
			colour = "#666666"
		}
		fmt.Fprintf(&buf, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labelSide-8, y+14, html.EscapeString(r.Contender))
		fmt.Fprintf(&buf, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelSide, y+3, x(r.Ratio)-labelSide, barHeight-6, colour)
		fmt.Fprintf(&buf, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="black"/>`, x(r.Least), x(r.Most), y+10, y+10)
		fmt.Fprintf(&buf, `<text x="%.1f" y="%d">%.2f</text>`+"\n", x(r.Most)+5, y+14, r.Ratio)
		fmt.Fprintf(&buf, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="red"/>`+"\n", x(1), x(1), y, y+barHeight)
		y += barHeight
	}
	buf.WriteString("</svg>\n")
	return buf.Bytes()
}

// PNG draws the results as bars, one panel for each workload.
func PNG(results []Result) ([]byte, error) {
	var panels []picture.Panel
	for _, name := range workloadsOf(results) {
		var p picture.Panel
		for _, r := range results {
			if r.Workload != name {
				continue
			}
			p.Title = fmt.Sprintf("%s: time of a step over the bound of %.0f s (less is better)", name, r.Bound.Seconds())
			p.Bars = append(p.Bars, picture.Bar{Label: r.Contender, Value: r.Ratio, Text: fmt.Sprintf("%.2f", r.Ratio), Ours: strings.HasPrefix(r.Contender, expectedName)})
		}
		panels = append(panels, p)
	}
	return picture.PNG("temper-bench scheduler: the bound is the work of all rollouts divided by the engines", panels)
}
