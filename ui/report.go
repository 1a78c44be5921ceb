package ui

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/series"
)

//go:embed report.html
var reportPage string

// Report returns the story of a run as an HTML page that needs no other file. The page marks
// what the run does not record.
func Report(ctx context.Context, h *history.Run, build string) ([]byte, error) {
	story, err := buildReport(ctx, h, build)
	if err != nil {
		return nil, err
	}
	page, err := template.New("report").Funcs(template.FuncMap{
		"num": showNumber, "percent": func(v *float64) string { return percentOf(v) }, "shown": shown, "seconds": func(s float64) string { return export.Duration(time.Duration(s * float64(time.Second))) },
	}).Parse(reportPage)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, story); err != nil {
		return nil, fmt.Errorf("report of run %s: %w", h.ID(), err)
	}
	return out.Bytes(), nil
}

// report is the content of the page.
type report struct {
	ID, Name, State, Reason, Build string
	Seed                           uint64
	Steps, NumSteps                int
	Started, Ended                 string
	Summary                        *run.Summary
	Keys                           []ConfigKey // that differ from their defaults
	Amendments                     []string
	Curves                         []curve
	Evaluations                    []run.Evaluation
	Marks                          []Mark
	Samples                        []sample
	NotPromised                    string

	records []run.StepRecord
}

// curve is a series as a picture.
type curve struct {
	Name, Meaning, Unit string
	SVG                 template.HTML
}

// sample is a trajectory of the report.
type sample struct {
	Step   int
	Title  string
	Why    string
	Prompt string
	Answer string
	Key    string
	Turns  []TurnView
	Reward float64
}

func buildReport(ctx context.Context, h *history.Run, build string) (*report, error) {
	entry, err := h.Entry(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := h.Config(ctx)
	if err != nil {
		return nil, err
	}
	s := &report{ID: h.ID(), Name: cfg.Name, State: entry.State, Reason: entry.Reason, Build: build, Seed: entry.Seed, Steps: entry.Step, NumSteps: entry.NumSteps, NotPromised: cfg.NotPromised()}
	s.Started, s.Ended = entry.Started.UTC().Format(time.DateTime), entry.Updated.UTC().Format(time.DateTime)
	for _, a := range cfg.Amendments {
		s.Amendments = append(s.Amendments, a.Order())
	}
	if s.Keys, err = changedKeys(cfg); err != nil {
		return nil, err
	}
	if s.records, err = h.Records(ctx); err != nil {
		return nil, err
	}
	s.Curves = curvesOf(s.records)
	if s.Evaluations, err = h.Evaluations(ctx); err != nil {
		return nil, err
	}
	if sum, ok, err := h.Summary(ctx); err != nil {
		return nil, err
	} else if ok {
		s.Summary = &sum
	}
	entries, err := history.Follow(h.Store(), h.ID()).Poll(ctx)
	if err != nil {
		return nil, err
	}
	s.Marks = timelineOf(entries).Marks
	s.Samples, err = samplesOf(ctx, h, cfg, s.records)
	return s, err
}

// changedKeys are the keys of the newest configuration that differ from their defaults.
func changedKeys(cfg config.Run) ([]ConfigKey, error) {
	changes, err := difference(config.Default(), cfg.Newest())
	if err != nil {
		return nil, err
	}
	var out []ConfigKey
	for _, c := range changes {
		out = append(out, ConfigKey{Key: c.Key, Value: c.To, Default: c.From})
	}
	return out, nil
}

// reported are the series of the page, in their order.
var reported = [...]string{
	series.Reward, series.ToolErrors, series.CorrectErrors, series.KeptErrors, series.GroupsDropped, series.Response, series.Turns, series.Entropy, series.GradNorm, series.StepSeconds,
}

func curvesOf(records []run.StepRecord) []curve {
	about := map[string]series.Metric{}
	for _, m := range series.All() {
		about[m.Name] = m
	}
	var out []curve
	for _, name := range reported {
		out = append(out, curve{Name: name, Meaning: about[name].Meaning, Unit: about[name].Unit, SVG: draw(records, name)})
	}
	return out
}

// Size of a picture and of its margins.
const (
	pictureWidth, pictureHeight = 520, 170
	marginLeft, marginBottom    = 56, 20
)

// draw is a series as SVG: the line, the mean of each stage, and the borders of stages.
// All that is in it are numbers.
func draw(records []run.StepRecord, name string) template.HTML {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range records {
		if v, ok := series.Known(r.Metrics, name); ok && finiteOr(v, math.MaxFloat64) == v {
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 0) {
		return "<p>not recorded</p>"
	}
	if low == high {
		low, high = low-1, high+1
	}
	first, last := records[0].Step, records[len(records)-1].Step
	x := func(step int) float64 {
		return marginLeft + (pictureWidth-marginLeft-8)*float64(step-first)/float64(max(1, last-first))
	}
	y := func(v float64) float64 {
		return 8 + (pictureHeight-marginBottom-8)*(1-(v-low)/(high-low))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img">`, pictureWidth, pictureHeight)
	for i := range 3 {
		v := low + (high-low)*float64(i)/2
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" class="rule"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, marginLeft, y(v), pictureWidth-8, marginLeft-6, y(v)+4, showNumber(v))
	}
	line, pen := "", "M"
	for i, r := range records {
		if i > 0 && r.Stage != records[i-1].Stage {
			fmt.Fprintf(&b, `<path d="M%.1f 8V%d" class="border"/>`, (x(r.Step)+x(records[i-1].Step))/2, pictureHeight-marginBottom)
		}
		v, ok := series.Known(r.Metrics, name)
		if !ok || finiteOr(v, math.MaxFloat64) != v {
			pen = "M"
			continue
		}
		line += fmt.Sprintf("%s%.1f %.1f", pen, x(r.Step), y(v))
		pen = "L"
	}
	fmt.Fprintf(&b, `<path d="%s" class="line"/><text x="%d" y="%d">%d</text><text x="%d" y="%d" text-anchor="end">step %d</text></svg>`,
		line, marginLeft, pictureHeight-4, first, pictureWidth-8, pictureHeight-4, last)
	return template.HTML(b.String()) //nolint:gosec // numbers alone
}

func showNumber(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e5 || a > 0 && a < 1e-3:
		return fmt.Sprintf("%.2e", v)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func percentOf(v *float64) string {
	if v == nil {
		return notRecorded
	}
	return fmt.Sprintf("%.1f%%", 100**v)
}

// shown makes visible what a text hides: control characters, and those that turn its
// direction around.
func shown(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)) {
			fmt.Fprintf(&b, `\u{%x}`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// samplesOf chooses of the first and of the newest step with texts a group that was kept:
// of it the first kept trajectory that is correct and the first that is wrong.
func samplesOf(ctx context.Context, h *history.Run, cfg config.Run, records []run.StepRecord) ([]sample, error) {
	var out []sample
	steps := []int{}
	for _, r := range records {
		steps = append(steps, r.Step)
	}
	for _, order := range [][]int{steps, reversed(steps)} {
		for _, step := range order {
			some, err := samplesOfStep(ctx, h, cfg, step)
			if err != nil {
				return nil, err
			}
			if len(some) > 0 {
				out = append(out, some...)
				break
			}
		}
		if len(steps) < 2 {
			break
		}
	}
	return out, nil
}

func reversed(list []int) []int {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

func samplesOfStep(ctx context.Context, h *history.Run, cfg config.Run, step int) ([]sample, error) {
	batch, ok, err := history.RolloutsOf(h).Batch(ctx, step)
	if err != nil || !ok {
		return nil, err
	}
	i := slices.IndexFunc(batch.Groups, func(g run.GroupRecord) bool { return g.NumSamples > 0 })
	if i < 0 {
		return nil, nil
	}
	id := batch.Groups[i].ProblemID
	ts, err := h.Group(ctx, step, id)
	if errors.Is(err, blob.ErrNotExist) { // deleted since
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reader := &runReader{cache: newCache(cacheBytes)}
	rows, _, _, err := reader.groupRows(ctx, h, step, id)
	if err != nil {
		return nil, err
	}
	p, err := reader.problem(ctx, h, step, id)
	if err != nil {
		return nil, err
	}
	e := newExplainer(rows, cfg.At(step).RL)
	var out []sample
	for _, correct := range []bool{true, false} {
		for _, row := range rows {
			at := slices.IndexFunc(ts, func(t rl.Trajectory) bool { return t.Rollout == row.Rollout })
			if row.Fate != record.FateKept || row.Reward > 0 != correct || at < 0 {
				continue
			}
			v, err := view(ctx, h, &ts[at], p)
			if err != nil {
				return nil, err
			}
			out = append(out, sample{
				Step: step, Title: fmt.Sprintf("Step %d, problem %s, rollout %d", step, id, row.Rollout), Why: e.sentence(row), Prompt: p.Prompt, Answer: v.Answer, Key: p.Answer,
				Turns: v.TurnViews, Reward: row.Reward,
			})
			break
		}
	}
	return out, nil
}
