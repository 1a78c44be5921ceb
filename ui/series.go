package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/internal/export"
	"temper/internal/run"
	"temper/internal/series"
)

// Number is a number in JSON, and a text where JSON has no word for it: NaN, +Inf, -Inf.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

func (n Number) append(out []byte) []byte {
	x := float64(n)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.AppendQuote(out, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strconv.AppendFloat(out, x, 'g', -1, 64)
}

func finiteOr(x, otherwise float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return otherwise
	}
	return x
}

// SeriesView holds series of a run. Each list has one value for each step of Steps, null
// where the step has none.
type SeriesView struct {
	Steps  []int    `json:"steps"`
	Stages []string `json:"stages"`
	// Wall is seconds since the first step began, Tokens the response tokens so far.
	Wall   []float64            `json:"wall"`
	Tokens []float64            `json:"tokens"`
	Values map[string][]*Number `json:"values"`
	// Thinned means that values are the lowest or highest of their neighbours, except at the
	// first step of each stage and at the newest step.
	Thinned bool `json:"thinned,omitempty"`
}

// encoded encodes the view as JSON without a call of MarshalJSON for each number.
func (v SeriesView) encoded() []byte {
	head, err := json.Marshal(SeriesView{Steps: v.Steps, Stages: v.Stages, Wall: v.Wall, Tokens: v.Tokens, Thinned: v.Thinned})
	if err != nil { // a time or a sum that is not finite
		return nil
	}
	before, after, _ := bytes.Cut(head, []byte(`"values":null`))
	out := append(slices.Grow(slices.Clip(before), 16*len(v.Values)*len(v.Steps)), `"values":{`...)
	for i, key := range slices.Sorted(maps.Keys(v.Values)) {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil
		}
		out = append(append(out, name...), ":["...)
		for j, n := range v.Values[key] {
			if j > 0 {
				out = append(out, ',')
			}
			if n == nil {
				out = append(out, "null"...)
			} else {
				out = n.append(out)
			}
		}
		out = append(out, ']')
	}
	return append(append(out, '}'), after...)
}

const totalTokens = "perf/total_num_tokens"

// runPages serves the pages of one run, its exports and its notes.
type runPages struct {
	reader *runReader
	// temporalUI and namespace make links to Temporal's own page.
	temporalUI, namespace string
	storeNotes            func(ctx context.Context, runID string, n run.Notes) error // nil: read only
	now                   func() time.Time
	log                   *slog.Logger
}

// defaultPoints is more than a screen can show.
const defaultPoints = 2000

func (rp *runPages) showSeries(r *request) (SeriesView, error) {
	var out SeriesView
	h, err := rp.reader.open(r)
	if err != nil {
		return out, err
	}
	from, err := r.queryNumber("from", 0)
	if err != nil {
		return out, err
	}
	to, err := r.queryNumber("to", math.MaxInt)
	if err != nil {
		return out, err
	}
	points, err := r.queryNumber("points", defaultPoints)
	if err != nil {
		return out, err
	}
	records, err := rp.reader.records(r.Context(), h)
	if err != nil {
		return out, err
	}
	records = slices.DeleteFunc(slices.Clone(records), func(rec run.StepRecord) bool { return rec.Step < from || rec.Step > to })
	var keys []string
	if q := r.URL.Query().Get("keys"); q != "" {
		keys = strings.Split(q, ",")
	}
	match, err := matcher(r.URL.Query().Get("match"))
	if err != nil {
		return out, err
	}
	if match != nil {
		if keys == nil {
			keys = export.Keys(records)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return !match.MatchString(key) })
	}
	out = seriesOf(records, keys)
	return out.thin(max(points, 4)), nil
}

// maxPattern bounds a regular expression.
const maxPattern = 200

// matcher compiles a regular expression, nil for none. RE2 takes time linear in the text.
func matcher(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	if len(pattern) > maxPattern {
		return nil, problem{http.StatusBadRequest, fmt.Sprintf("the regular expression has %d bytes, want at most %d", len(pattern), maxPattern)}
	}
	re, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		return nil, problem{http.StatusBadRequest, strings.Replace(err.Error(), "(?i)", "", 1)}
	}
	return re, nil
}

func seriesOf(records []run.StepRecord, keys []string) SeriesView {
	out := SeriesView{Values: map[string][]*Number{}, Steps: []int{}, Stages: []string{}, Wall: []float64{}, Tokens: []float64{}}
	if keys == nil {
		keys = export.Keys(records)
	}
	tokens := 0.0
	for _, rec := range records {
		tokens += finiteOr(rec.Metrics[totalTokens], 0)
		out.Steps = append(out.Steps, rec.Step)
		out.Stages = append(out.Stages, rec.StageName)
		out.Wall = append(out.Wall, rec.Ended.Sub(records[0].Started).Seconds())
		out.Tokens = append(out.Tokens, tokens)
	}
	for _, key := range keys {
		column := make([]*Number, len(records))
		for i, rec := range records {
			if v, ok := series.Known(rec.Metrics, key); ok {
				n := Number(v)
				column[i] = &n
			}
		}
		out.Values[key] = column
	}
	return out
}

// thin keeps two steps of each bucket, with the lowest and the highest value of each series.
// The first step of each stage and the newest step stay unchanged.
func (v SeriesView) thin(points int) SeriesView {
	if len(v.Steps) <= points {
		return v
	}
	out := SeriesView{Values: map[string][]*Number{}, Thinned: true}
	for _, b := range v.buckets(points / 2) {
		ends := []int{b.from, b.to - 1}
		if b.to-b.from == 1 {
			ends = ends[:1]
		}
		for _, i := range ends {
			out.Steps = append(out.Steps, v.Steps[i])
			out.Stages = append(out.Stages, v.Stages[i])
			out.Wall = append(out.Wall, v.Wall[i])
			out.Tokens = append(out.Tokens, v.Tokens[i])
		}
		for key, column := range v.Values {
			low, high := extremes(column[b.from:b.to])
			out.Values[key] = append(out.Values[key], []*Number{low, high}[:len(ends)]...)
		}
	}
	return out
}

// bucket is the steps [from, to).
type bucket struct{ from, to int }

// buckets divides the steps into num buckets, and more where a step needs its own.
func (v SeriesView) buckets(num int) (out []bucket) {
	n := len(v.Steps)
	for b := range num {
		from, to := b*n/num, (b+1)*n/num
		for i := from; i < to; i++ {
			if i > 0 && i < n-1 && v.Stages[i] == v.Stages[i-1] {
				continue
			}
			if i > from {
				out = append(out, bucket{from, i})
			}
			out = append(out, bucket{i, i + 1})
			from = i + 1
		}
		if from < to {
			out = append(out, bucket{from, to})
		}
	}
	return out
}

// extremes returns the lowest and the highest number, in their order.
func extremes(values []*Number) (first, second *Number) {
	low, high := -1, -1
	for i, v := range values {
		if v == nil || math.IsNaN(float64(*v)) {
			continue
		}
		if low < 0 || *v < *values[low] {
			low = i
		}
		if high < 0 || *v > *values[high] {
			high = i
		}
	}
	if low < 0 {
		return nil, nil
	}
	return values[min(low, high)], values[max(low, high)]
}

// attachment sets the headers of a download.
func attachment(w http.ResponseWriter, kind, name string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.Header().Set("Cache-Control", "no-store")
}

func (rp *runPages) exportCSV(w http.ResponseWriter, r *request) error {
	h, err := rp.reader.open(r)
	if err != nil {
		return err
	}
	records, err := rp.reader.records(r.Context(), h)
	if err != nil {
		return err
	}
	data, err := export.SeriesCSV(records)
	if err != nil {
		return err
	}
	attachment(w, "text/csv; charset=utf-8", h.ID()+".csv")
	_, _ = w.Write(data) // the client has gone when this fails
	return nil
}

func (rp *runPages) exportEvents(w http.ResponseWriter, r *request) error {
	h, err := rp.reader.open(r)
	if err != nil {
		return err
	}
	records, err := rp.reader.records(r.Context(), h)
	if err != nil {
		return err
	}
	attachment(w, "application/octet-stream", export.EventFile(records, h.ID()))
	_, _ = w.Write(export.TensorBoard(records)) // the client has gone when this fails
	return nil
}
