package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Report is the result of many runs.
type Report struct {
	Build    string  `json:"build"`
	Config   string  `json:"config"`
	Store    string  `json:"store"`
	Seed     uint64  `json:"seed"`
	Runs     int     `json:"runs"`
	Kills    int     `json:"kills"`
	Missed   int     `json:"missed"` // kills whose moment did not come, or that found no victim
	Objects  int     `json:"objects"`
	Undead   int     `json:"runs_that_did_not_end"`
	Differs  int     `json:"differing_objects"`
	Bits     int64   `json:"differing_bits"`
	Lost     int     `json:"lost_prompts"`
	Doubled  int     `json:"doubled_prompts"`
	Torn     int     `json:"torn_checkpoints"`
	Orphans  int     `json:"orphans"`
	Calm     Seconds `json:"undisturbed_wall_s"`
	Wall     Seconds `json:"median_wall_s"`
	Progress Spread  `json:"progress_s"`
	Stall    Spread  `json:"stall_s"`
	Extra    Spread  `json:"extra_s"`
	// By is a line for each kind of victim and each fail point.
	By     []Line   `json:"by"`
	Trials []Trial  `json:"trials"`
	Notes  []string `json:"notes,omitempty"`
}

// Spread is a median and the worst.
type Spread struct {
	Median Seconds `json:"median"`
	Worst  Seconds `json:"worst"`
}

// Line is the kills of one kind.
type Line struct {
	Victim   string `json:"victim"`
	Point    string `json:"point,omitempty"`
	Kills    int    `json:"kills"`
	Progress Spread `json:"progress_s"`
	Stall    Spread `json:"stall_s"`
	// Extra is what the kills added to the waits of the undisturbed run.
	Extra Spread `json:"extra_s"`
}

// Trial is one run with what was found in its store.
type Trial struct {
	Outcome
	Differences []Difference `json:"differences,omitempty"`
	Prompts     Prompts      `json:"prompts"`
	// Checkpoints is how many were loaded and verified; Torn names those that could not be.
	Checkpoints int      `json:"checkpoints"`
	Torn        []string `json:"torn,omitempty"`
	// Unreached names the armed fail points to which the run did not come.
	Unreached []string `json:"unreached,omitempty"`
}

// Good says whether nothing was lost, torn, left or different.
func (r *Report) Good() bool {
	return r.Undead+r.Differs+r.Lost+r.Doubled+r.Torn+r.Orphans == 0
}

// Sum fills in what follows from the trials.
func (r *Report) Sum() {
	r.Runs = len(r.Trials)
	kinds := map[Line][]Blow{}
	var all []Blow
	var walls []Seconds
	for i, t := range r.Trials {
		r.Kills += len(t.Blows)
		r.Missed += t.Missed
		r.Differs += len(t.Differences)
		r.Lost += t.Prompts.Lost
		r.Doubled += t.Prompts.Doubled
		r.Torn += len(t.Torn)
		r.Orphans += len(t.Orphans)
		walls = append(walls, t.Wall)
		if t.Failure != "" {
			r.Undead++
			r.Notes = append(r.Notes, fmt.Sprintf("run %d: %s", i+1, t.Failure))
		}
		for _, d := range t.Differences {
			r.Bits += d.Bits
			r.Notes = append(r.Notes, fmt.Sprintf("run %d: %s is %s, %d bits", i+1, d.Name, d.Kind, d.Bits))
		}
		for _, text := range slices.Concat(t.Prompts.Notes, t.Torn, t.Orphans, t.Unreached) {
			r.Notes = append(r.Notes, fmt.Sprintf("run %d: %s", i+1, text))
		}
		for _, b := range t.Blows {
			key := Line{Victim: b.Victim, Point: b.Point}
			kinds[key] = append(kinds[key], b)
			all = append(all, b)
		}
	}
	for line, blows := range kinds {
		line.Kills = len(blows)
		line.Progress, line.Stall, line.Extra = spreads(blows)
		r.By = append(r.By, line)
	}
	slices.SortFunc(r.By, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Point, b.Point), cmp.Compare(a.Victim, b.Victim))
	})
	r.Progress, r.Stall, r.Extra = spreads(all)
	r.Wall = spread(walls).Median
}

func spreads(blows []Blow) (progress, stall, extra Spread) {
	var first, longest, added []Seconds
	for _, b := range blows {
		first, longest, added = append(first, b.Progress), append(longest, b.Stall), append(added, b.Extra)
	}
	return spread(first), spread(longest), spread(added)
}

func spread(xs []Seconds) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(xs))
	return Spread{Median: sorted[len(sorted)/2], Worst: sorted[len(sorted)-1]}
}

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "victim\tfail point\tkills\tprogress, median s\tworst s\tlongest pause, median s\tworst s\tadded by the kill, median s\tworst s\t\n")
	for _, l := range r.By {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", l.Victim, cmp.Or(l.Point, "-"), l.Kills,
			l.Progress.Median, l.Progress.Worst, l.Stall.Median, l.Stall.Worst, l.Extra.Median, l.Extra.Worst)
	}
	fmt.Fprintf(t, "all\t\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.Kills, r.Progress.Median, r.Progress.Worst,
		r.Stall.Median, r.Stall.Worst, r.Extra.Median, r.Extra.Worst)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d runs of %s with %d objects each, seed %d, store %s: %.1f s undisturbed, median %.1f s with %d kills in all\n",
		r.Runs, r.Config, r.Objects, r.Seed, r.Store, r.Calm, r.Wall, r.Kills)
	fmt.Fprintf(w, "differing bits %d (in %d objects), lost prompts %d, doubled prompts %d, torn checkpoints %d, orphans %d, runs that did not end well %d\n",
		r.Bits, r.Differs, r.Lost, r.Doubled, r.Torn, r.Orphans, r.Undead)
	for _, note := range r.Notes {
		fmt.Fprintln(w, "  "+note)
	}
	return nil
}
