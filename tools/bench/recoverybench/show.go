package recoverybench

import (
	"bytes"
	"fmt"
	"text/tabwriter"
)

// Table writes results as text.
func Table(results []Result) string {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "interruptions\trecovery\ttrajectories\tmean tokens\tdifference\tmedian\tp90\tp99\treward\tlast quarter\tlost tokens\tequal")
	for _, r := range results {
		difference, equal := "", ""
		if r.Recovery != Undisturbed {
			difference = fmt.Sprintf("%+.1f %% (se %.1f)", 100*r.Bias, 100*r.BiasError)
			equal = fmt.Sprint(r.Equal)
		}
		fmt.Fprintf(w, "%g\t%s\t%d\t%.1f\t%s\t%d\t%d\t%d\t%.3f\t%.3f\t%.1f %%\t%s\n", r.Rate, r.Recovery, r.Trajectories, r.MeanTokens,
			difference, r.Median, r.P90, r.P99, r.Reward, r.LastReward, 100*r.LostTokens, equal)
	}
	w.Flush() //nolint:errcheck // a buffer takes everything
	return buf.String()
}

// Size of the plot and of its margins, in pixels.
const (
	plotWidth, plotHeight = 760, 420
	marginLeft, marginTop = 60, 30
	marginRight           = 20
	marginBottom          = 50
)

// Plot draws, as SVG, the share of trajectories that are longer than a number of
// sampled tokens: one line for each result.
func Plot(results []Result) []byte {
	longest := 1
	for _, r := range results {
		longest = max(longest, r.Longest)
	}
	x := func(tokens int) float64 {
		return marginLeft + float64(tokens)/float64(longest)*(plotWidth-marginLeft-marginRight)
	}
	y := func(share float64) float64 {
		return marginTop + (1-share)*(plotHeight-marginTop-marginBottom)
	}
	var buf bytes.Buffer
	fmt.Fprintf(&buf, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&buf, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	for i := range 6 {
		share, tokens := float64(i)/5, longest*i/5
		fmt.Fprintf(&buf, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, marginLeft, plotWidth-marginRight, y(share), y(share))
		fmt.Fprintf(&buf, `<text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`, marginLeft-8, y(share)+4, 100*share)
		fmt.Fprintf(&buf, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(tokens), plotHeight-marginBottom+18, tokens)
	}
	fmt.Fprintf(&buf, `<text x="%d" y="%d" text-anchor="middle">sampled tokens</text>`+"\n", plotWidth/2, plotHeight-10)
	fmt.Fprintf(&buf, `<text x="%d" y="18">trajectories that are longer</text>`+"\n", marginLeft)
	colours := []string{"#000000", "#1b9e77", "#d95f02", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#1f78b4", "#b2df8a"}
	for i, r := range results {
		colour := colours[i%len(colours)]
		dash := ""
		if r.Recovery == SameDraws {
			dash = ` stroke-dasharray="6 4"` // it lies on the undisturbed run
		}
		fmt.Fprintf(&buf, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, colour, dash)
		for tokens := 0; tokens <= longest; tokens++ {
			fmt.Fprintf(&buf, "%.1f,%.1f ", x(tokens), y(r.longer(tokens)))
		}
		top := marginTop + 14 + 17*i
		fmt.Fprintf(&buf, `"/>`+"\n"+`<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="2"%s/>`, plotWidth-230, plotWidth-205, top-4, top-4, colour, dash)
		fmt.Fprintf(&buf, `<text x="%d" y="%d">%s</text>`+"\n", plotWidth-198, top, r.label())
	}
	buf.WriteString("</svg>\n")
	return buf.Bytes()
}

// longer is the share of trajectories with more sampled tokens.
func (r *Result) longer(tokens int) float64 {
	n := 0
	for _, l := range r.lengths {
		if l > tokens {
			n++
		}
	}
	return float64(n) / float64(max(1, len(r.lengths)))
}

func (r *Result) label() string {
	if r.Recovery == Undisturbed {
		return string(r.Recovery)
	}
	return fmt.Sprintf("%s, %g each", r.Recovery, r.Rate)
}
