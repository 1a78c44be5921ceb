package ablation

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"temper/internal/series"
)

// Value is a number that may not be there. In JSON such a one is null.
type Value float64

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(v))
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*v = Value(math.NaN())
		return nil
	}
	var x float64
	err := json.Unmarshal(data, &x)
	*v = Value(x)
	return err
}

// window is the number of steps that "first" and "last" average over.
const window = 10

// Column is a number of the table.
type Column struct {
	Name        string
	digits      int
	least, most float64
	of          func(RunResult) float64
}

// Columns are the numbers of the table, in their order.
func Columns() []Column {
	part := func(name string, last bool) func(RunResult) float64 {
		return func(r RunResult) float64 { return r.average(name, last) }
	}
	return []Column{
		{"held-out accuracy before RL", 3, 0, 1, func(r RunResult) float64 { return known(r.Before) }},
		{"held-out accuracy", 3, 0, 1, func(r RunResult) float64 { return known(r.Accuracy) }},
		{fmt.Sprintf("accuracy, last %d steps", window), 3, 0, 1, part(series.Reward, true)},
		{fmt.Sprintf("tool errors in correct, first %d", window), 3, 0, 1, part(series.CorrectErrors, false)},
		{fmt.Sprintf("tool errors in correct, last %d", window), 3, 0, 1, part(series.CorrectErrors, true)},
		{fmt.Sprintf("response tokens, last %d", window), 1, 0, math.Inf(1), part(series.Response, true)},
	}
}

func known(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// columns are the numbers of a run by column.
func (r RunResult) columns() map[string]float64 {
	out := map[string]float64{}
	for _, c := range Columns() {
		out[c.Name] = c.of(r)
	}
	return out
}

// average is the mean of a series over the first or the last steps that have it.
func (r RunResult) average(name string, last bool) float64 {
	xs := r.Series[name]
	if n := len(xs); n > window && last {
		xs = xs[n-window:]
	} else if n > window {
		xs = xs[:window]
	}
	sum, n := 0.0, 0
	for _, x := range xs {
		if !math.IsNaN(float64(x)) {
			sum += float64(x)
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// Output is a file that shows a result.
type Output struct {
	Name string
	Data []byte
}

// Files are all files that show the result.
func (r Result) Files() ([]Output, error) {
	asJSON, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode result of ablation %s: %w", r.ID, err)
	}
	asCSV, err := r.CSV()
	if err != nil {
		return nil, err
	}
	picture, err := r.PNG()
	if err != nil {
		return nil, err
	}
	return []Output{{"result.json", asJSON}, {"series.csv", asCSV}, {"table.md", []byte(r.Markdown())}, {"figure.png", picture}}, nil
}

// CSV has a line for each arm, measure and step.
func (r Result) CSV() ([]byte, error) {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	lines := [][]string{{"arm", "series", "step", "seeds", "mean", "low", "high"}}
	for _, a := range r.Arms {
		for _, m := range Measures() {
			for step, b := range a.Series[m.Name] {
				lines = append(lines, []string{a.Name, m.Name, strconv.Itoa(step + 1), strconv.Itoa(b.N), b.Mean.text(), b.Low.text(), b.High.text()})
			}
		}
	}
	err := w.WriteAll(lines)
	return buf.Bytes(), err
}

// text is a number in CSV, "" where there is none.
func (v Value) text() string {
	if math.IsNaN(float64(v)) {
		return ""
	}
	return strconv.FormatFloat(float64(v), 'g', 6, 64)
}

// Markdown is the table: a line for each arm, one for the difference of each from the
// first, and what is missing.
func (r Result) Markdown() string {
	var out strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	head, rule := []string{"arm", "seeds"}, []string{"---", "---"}
	for _, c := range Columns() {
		head, rule = append(head, c.Name), append(rule, "---")
	}
	line(head...)
	line(rule...)
	for _, a := range r.Arms {
		line(append([]string{a.Name, fmt.Sprintf("%d of %d", a.Runs, a.Of)}, cells(a.Table)...)...)
	}
	for _, a := range r.Arms[min(1, len(r.Arms)):] {
		pairs := 0
		for _, b := range a.Against {
			pairs = max(pairs, b.N)
		}
		line(append([]string{a.Name + " - " + r.Arms[0].Name, fmt.Sprintf("%d pairs", pairs)}, cells(a.Against)...)...)
	}
	out.WriteString("\nIn brackets: 95 % interval over seeds (Student's t). A difference is a mean over the seeds that both arms have.\n")
	for _, x := range r.Runs {
		if x.State != RunDone && x.State != RunFound {
			fmt.Fprintf(&out, "\n- not counted: %s", x.line())
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func cells(of map[string]Band) (out []string) {
	for _, c := range Columns() {
		out = append(out, of[c.Name].cell(c.digits))
	}
	return out
}

// cell is a band in the table.
func (b Band) cell(digits int) string {
	number := func(v Value) string { return strconv.FormatFloat(float64(v), 'f', digits, 64) }
	switch {
	case b.N == 0:
		return "-"
	case math.IsNaN(float64(b.Low)):
		return number(b.Mean)
	default:
		return fmt.Sprintf("%s [%s, %s]", number(b.Mean), number(b.Low), number(b.High))
	}
}
