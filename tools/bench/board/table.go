package board

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// cells is the report as two tables: what a call costs, and what a way is.
func (r Report) cells() (costs, ways [][]string) {
	costs = [][]string{{"program", "way", "calls/s/core", "CPU a call", "p50", "p99", fmt.Sprintf("calls/s, %d in flight", r.Concurrency), "failed"}}
	first := map[string]Row{}
	for _, row := range r.Rows {
		base, ok := first[row.Program]
		if !ok {
			base, first[row.Program] = row, row
		}
		cpu := ms(row.CPU)
		if ok && base.CPU > 0 {
			cpu += fmt.Sprintf(" (%.1fx)", float64(row.CPU)/float64(base.CPU))
		}
		costs = append(costs, []string{
			row.Program, row.Way, number(row.PerCore), cpu, ms(row.P50), ms(row.P99), number(row.PerSecond), fmt.Sprintf("%d of %d", row.Failed, row.Calls),
		})
	}
	ways = [][]string{{"way", "isolation", fmt.Sprintf("held, of %d probes", len(r.Probes)), "not held", "memory of one that is idle"}}
	for _, w := range r.Ways {
		if w.Missing != "" {
			ways = append(ways, []string{w.Name, "not measured: " + w.Missing, "", "", ""})
			continue
		}
		ways = append(ways, []string{
			w.Name, w.Layers, fmt.Sprint(len(w.Held)), strings.Join(w.through(r.Probes), ", "), fmt.Sprintf("%.1f MiB, %s", float64(w.Idle)/(1<<20), w.Unit),
		})
	}
	return costs, ways
}

// through are the probes that a way does not hold.
func (w Way) through(all []string) []string {
	held := map[string]bool{}
	for _, name := range w.Held {
		held[name] = true
	}
	var out []string
	for _, name := range all {
		if !held[name] {
			out = append(out, name)
		}
	}
	return out
}

// headline says on what machine the board was made.
func (r Report) headline() string {
	return fmt.Sprintf("%d cores of %s, load %s; %s for all", r.Cores, r.CPU, r.Load, r.Python)
}

// Text is the board for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.headline())
	costs, ways := r.cells()
	for _, table := range [][][]string{costs, ways} {
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range table {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		_ = w.Flush() // a builder takes everything
	}
	r.failures(&b)
	return b.String()
}

// Markdown is the board for a document.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.headline()+".")
	costs, ways := r.cells()
	for _, table := range [][][]string{costs, ways} {
		b.WriteByte('\n')
		for i, row := range table {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
			}
		}
	}
	r.failures(&b)
	return b.String()
}

func (r Report) failures(b *strings.Builder) {
	for _, row := range r.Rows {
		if row.Failed > 0 {
			fmt.Fprintf(b, "\n%s, %s: first failure %s\n", row.Program, row.Way, row.Failure)
		}
	}
}

func ms(d time.Duration) string {
	switch f := float64(d) / float64(time.Millisecond); {
	case f >= 100:
		return fmt.Sprintf("%.0f ms", f)
	case f >= 10:
		return fmt.Sprintf("%.1f ms", f)
	default:
		return fmt.Sprintf("%.2f ms", f)
	}
}

func number(f float64) string {
	if f >= 100 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}
