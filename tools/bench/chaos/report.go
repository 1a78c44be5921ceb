package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"temper/internal/run/runtest"
)

// Report is the result of many runs, perhaps of several soaks and machines.
type Report struct {
	Builds   []string `json:"builds"`
	Machines []string `json:"machines"`
	Configs  []string `json:"configs"`
	Stores   []string `json:"stores"`
	Runs     int      `json:"runs"`
	Elastic  int      `json:"elastic_runs"`
	// Samplers is the median number of processes that sampled in an elastic run.
	Samplers int `json:"elastic_samplers"`
	// Interrupted counts trials that began and were never finished. What they did is
	// counted nowhere else.
	Interrupted int `json:"interrupted_runs"`
	// Undisturbed counts the runs that the others are compared with.
	Undisturbed int     `json:"undisturbed_runs"`
	Calm        Seconds `json:"undisturbed_wall_s"` // median
	Objects     int     `json:"objects"`            // of the last undisturbed run
	Kills       int     `json:"kills"`
	Moves       int     `json:"moves"`
	Drained     int     `json:"drained"`
	Missed      int     `json:"missed"` // kills and moves whose moment did not come, or that found no process
	Undead      int     `json:"runs_that_did_not_end"`
	Differs     int     `json:"differing_objects"`
	Bits        int64   `json:"differing_bits"`
	// CalmDiffers counts undisturbed runs that differ from others of the same build,
	// configuration and processor.
	CalmDiffers int     `json:"differing_undisturbed_runs"`
	Compared    int     `json:"compared_objects"`
	Lost        int     `json:"lost_prompts"`
	Doubled     int     `json:"doubled_prompts"`
	Torn        int     `json:"torn_checkpoints"`
	Orphans     int     `json:"orphans"`
	Wall        Seconds `json:"median_wall_s"`
	// By has the kills from outside by victim and stage of life, then those at fail
	// points, then all.
	By     []Row    `json:"by"`
	Trials []Trial  `json:"trials"`
	Notes  []string `json:"notes,omitempty"`
}

// Spread is what many times look like.
type Spread struct {
	Median Seconds `json:"median"`
	P95    Seconds `json:"p95"`
	Worst  Seconds `json:"worst"`
}

// Row is the kills of one kind.
type Row struct {
	Victim string `json:"victim"`
	Life   Life   `json:"life,omitempty"` // "" for all stages
	Point  string `json:"point,omitempty"`
	Kills  int    `json:"kills"`
	// Progress is the time to the next new object.
	Progress Spread `json:"progress_s"`
	// Stall is the longest time without one until the next kill.
	Stall Spread `json:"stall_s"`
	// Extra is what the kills added to the waits of the undisturbed run.
	Extra Spread `json:"extra_s"`
}

// Trial is one run with what was found in its store.
type Trial struct {
	Outcome
	// Name says which trial it was.
	Name        string               `json:"name"`
	Elastic     bool                 `json:"elastic,omitempty"`
	Differences []runtest.Difference `json:"differences,omitempty"`
	Prompts     Prompts              `json:"prompts"`
	// Compared is how many objects were compared.
	Compared int `json:"compared"`
	// Checkpoints is how many were loaded and verified; Torn names those that could not be.
	Checkpoints int      `json:"checkpoints"`
	Torn        []string `json:"torn,omitempty"`
	// Unreached names the armed fail points to which the run did not come.
	Unreached []string `json:"unreached,omitempty"`
}

// Good says whether the trial's run ended, and lost, tore, left and changed nothing.
func (t *Trial) Good() bool {
	return t.Failure == "" && len(t.Differences)+t.Prompts.Lost+t.Prompts.Doubled+len(t.Torn)+len(t.Orphans) == 0
}

// Good says whether nothing was lost, torn, left or different.
func (r *Report) Good() bool {
	return r.Undead+r.Differs+r.CalmDiffers+r.Lost+r.Doubled+r.Torn+r.Orphans == 0
}

// SumUp makes the report of the lines of one or more ledgers. A line that is there
// more than once counts once.
func SumUp(lines []Line) *Report {
	r := &Report{}
	seen, begun := map[string]bool{}, map[string]bool{}
	results := map[string]string{}
	var calms []Seconds
	for _, line := range lines {
		key := line.Kind + line.ID
		if seen[key] {
			continue
		}
		seen[key] = true
		switch line.Kind {
		case LineCalm:
			calms = append(calms, line.Wall)
			r.Undisturbed, r.Objects = r.Undisturbed+1, line.Objects
			s := line.Setting
			like := strings.Join([]string{s.Build, s.Machine, s.Digest}, "\n")
			if before, ok := results[like]; ok && before != line.Result {
				r.CalmDiffers++
				r.Notes = append(r.Notes, fmt.Sprintf("undisturbed runs of %s by %s differ", s.Config, s.Build))
			}
			results[like] = line.Result
		case LineBegin:
			begun[line.ID] = true
		case LineTrial:
			if line.Trial == nil {
				continue
			}
			r.Trials = append(r.Trials, *line.Trial)
			r.name(line.Setting)
		}
	}
	for id := range begun {
		if !seen[LineTrial+id] {
			r.Interrupted++
		}
	}
	r.Calm = spread(calms).Median
	r.sum()
	return r
}

// name adds what a trial was made of.
func (r *Report) name(s Setting) {
	for list, text := range map[*[]string]string{&r.Builds: s.Build, &r.Machines: s.Machine, &r.Configs: s.Config, &r.Stores: s.Store} {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
}

// sum fills in what follows from the trials.
func (r *Report) sum() {
	r.Runs = len(r.Trials)
	var walls []Seconds
	var samplers []int
	rows := map[Row][]Blow{}
	for _, t := range r.Trials {
		r.Kills += len(t.Blows)
		r.Moves += len(t.Moves)
		r.Drained += t.Drained
		r.Missed += t.Missed
		r.Compared += t.Compared
		r.Differs += len(t.Differences)
		r.Lost += t.Prompts.Lost
		r.Doubled += t.Prompts.Doubled
		r.Torn += len(t.Torn)
		r.Orphans += len(t.Orphans)
		walls = append(walls, t.Wall)
		if t.Elastic {
			r.Elastic++
			if t.Samplers > 0 { // otherwise nobody knows
				samplers = append(samplers, t.Samplers)
			}
		}
		r.Notes = append(r.Notes, t.notes()...)
		for _, d := range t.Differences {
			r.Bits += d.Bits
		}
		if t.Failure != "" {
			r.Undead++
		}
		for _, b := range t.Blows {
			for _, row := range rowsOf(b) {
				rows[row] = append(rows[row], b)
			}
		}
	}
	for row, blows := range rows {
		row.Kills = len(blows)
		row.Progress, row.Stall, row.Extra = spreads(blows)
		r.By = append(r.By, row)
	}
	slices.SortFunc(r.By, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.group(), b.group()), cmp.Compare(a.Point, b.Point), cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.Life, b.Life))
	})
	r.Wall = spread(walls).Median
	if slices.Sort(samplers); len(samplers) > 0 {
		r.Samplers = samplers[len(samplers)/2]
	}
}

// notes are lines about what is wrong with a trial.
func (t *Trial) notes() []string {
	var out []string
	if t.Failure != "" {
		out = append(out, fmt.Sprintf("%s: %s", t.Name, t.Failure))
	}
	for _, d := range t.Differences {
		out = append(out, fmt.Sprintf("%s: %s is %s, %d bits", t.Name, d.Name, d.Kind, d.Bits))
	}
	for _, text := range slices.Concat(t.Prompts.Notes, t.Torn, t.Orphans, t.Unreached) {
		out = append(out, fmt.Sprintf("%s: %s", t.Name, text))
	}
	return out
}

// everyone stands for all victims.
const everyone = "all"

// rowsOf are the rows in which a kill counts.
func rowsOf(b Blow) []Row {
	if b.Point != "" {
		return []Row{{Victim: b.Victim, Point: b.Point}, {Victim: everyone, Point: everyone}, {Victim: everyone}}
	}
	return []Row{{Victim: b.Victim}, {Victim: b.Victim, Life: b.Life}, {Victim: everyone, Life: b.Life}, {Victim: everyone}}
}

// group orders the rows of a table: victims, fail points, all.
func (r Row) group() int {
	switch {
	case r.Victim != everyone && r.Point == "":
		return 0
	case r.Victim != everyone:
		return 1
	case r.Point != "" || r.Life != "":
		return 2
	default:
		return 3
	}
}

// when says in a table when the process was killed.
func (r Row) when() string {
	switch {
	case r.Point == everyone:
		return "at a fail point"
	case r.Point != "":
		return r.Point
	default:
		return cmp.Or(string(r.Life), "at any time")
	}
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
	n := len(sorted)
	return Spread{Median: sorted[n/2], P95: sorted[min(n-1, n*95/100)], Worst: sorted[n-1]}
}

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "victim\tkilled\tkills\tprogress s: median\tp95\tworst\tpause s: median\tp95\tworst\tadded s: median\tp95\tworst\t\n")
	for _, l := range r.By {
		fmt.Fprintf(t, "%s\t%s\t%d\t", l.Victim, l.when(), l.Kills)
		for _, s := range []Spread{l.Progress, l.Stall, l.Extra} {
			fmt.Fprintf(t, "%.2f\t%.2f\t%.2f\t", s.Median, s.P95, s.Worst)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d runs (%d elastic with %d joins and leaves, median %d processes that sampled) of %s, store %s, %d interrupted; %d undisturbed runs of %d objects, %.1f s; median %.1f s with %d kills in all\n",
		r.Runs, r.Elastic, r.Moves, r.Samplers, strings.Join(r.Configs, ", "), strings.Join(r.Stores, ", "), r.Interrupted, r.Undisturbed, r.Objects, r.Calm, r.Wall, r.Kills)
	fmt.Fprintf(w, "machines: %s\nbuilds: %s\n", strings.Join(r.Machines, "; "), strings.Join(r.Builds, "; "))
	fmt.Fprintf(w, "compared %d objects: differing %d (%d bits), undisturbed runs that differ %d, lost prompts %d, doubled prompts %d, torn checkpoints %d, orphans %d, runs that did not end well %d\n",
		r.Compared, r.Differs, r.Bits, r.CalmDiffers, r.Lost, r.Doubled, r.Torn, r.Orphans, r.Undead)
	for _, note := range r.Notes {
		fmt.Fprintln(w, "  "+note)
	}
	return nil
}
