package rules

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"temper/internal/series"
)

// Metrics that a rule may name, each a mean over held-out problems. Accuracy and the
// metrics called mean come from greedy rollouts, the others from sampled ones.
const (
	Accuracy        = "accuracy"
	SampledAccuracy = "sampled_accuracy"
	ToolErrorRate   = series.ToolErrorRate
	MeanTokens      = "mean_tokens"
	MeanTurns       = "mean_turns"
	MeanCalls       = "mean_calls"
)

// DefaultRule is the gate of a schedule without one: not worse than the last good
// policy.
const DefaultRule = Accuracy + ">=+0"

// GateScore is the score of one policy on the held-out problems of one stage.
type GateScore struct {
	Stage    string             `json:"stage"`
	Problems int                `json:"problems"`
	Metrics  map[string]float64 `json:"metrics"`
}

// GateRule is one threshold, for example accuracy>=+0.01 (better than the last good
// policy by 0.01), accuracy>=-0.02 (worse by 0.02 at most), tool_error_rate<=0.1
// (whatever the last good policy has) or hops-2/accuracy>=+0 (on one stage; a
// rule without a stage is about the mean over the problems of all stages).
type GateRule struct {
	Stage    string // "" for all stages
	Metric   string
	AtMost   bool    // <= instead of >=
	Relative bool    // Value is added to the score of the last good policy
	Value    float64 // in units of the metric
}

var ruleForm = regexp.MustCompile(`^\s*(?:([a-z0-9-]+)/)?([a-z_]+)\s*(>=|<=)\s*([+-]?)([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*$`)

// ParseGate reads a rule as Rule describes it.
func ParseGate(text string) (GateRule, error) {
	m := ruleForm.FindStringSubmatch(text)
	if m == nil {
		return GateRule{}, fmt.Errorf("gate %q: want METRIC>=VALUE or METRIC<=VALUE, with +VALUE or -VALUE counted from the last good policy, for example %s>=+0.01", text, Accuracy)
	}
	known := []string{Accuracy, SampledAccuracy, ToolErrorRate, MeanTokens, MeanTurns, MeanCalls}
	if !slices.Contains(known, m[2]) {
		return GateRule{}, fmt.Errorf("gate %q: unknown metric %q, want one of %s", text, m[2], strings.Join(known, ", "))
	}
	value, err := strconv.ParseFloat(m[5], 64)
	if err != nil {
		return GateRule{}, fmt.Errorf("gate %q: %w", text, err)
	}
	if m[4] == "-" {
		value = -value
	}
	return GateRule{Stage: m[1], Metric: m[2], AtMost: m[3] == "<=", Relative: m[4] != "", Value: value}, nil
}

// ParseGates reads the rules of a gate, DefaultRule when there is none. The error
// names every rule that cannot be read, or whose stage is not in stages.
func ParseGates(texts, stages []string) ([]GateRule, error) {
	if len(texts) == 0 {
		texts = []string{DefaultRule}
	}
	var rules []GateRule
	var bad []error
	for _, text := range texts {
		r, err := ParseGate(text)
		if err == nil && r.Stage != "" && !slices.Contains(stages, r.Stage) {
			err = fmt.Errorf("gate %q: no stage %q, want one of %s", text, r.Stage, strings.Join(stages, ", "))
		}
		rules, bad = append(rules, r), append(bad, err)
	}
	return rules, errors.Join(bad...)
}

// String is the form that Parse reads.
func (r GateRule) String() string {
	name, op, value := r.Metric, ">=", strconv.FormatFloat(r.Value, 'g', -1, 64)
	if r.Stage != "" {
		name = r.Stage + "/" + name
	}
	if r.AtMost {
		op = "<="
	}
	if r.Relative && r.Value >= 0 && !math.Signbit(r.Value) {
		value = "+" + value
	}
	return name + op + value
}

// GateVerdict is the result of one rule for a candidate.
type GateVerdict struct {
	Rule   string `json:"rule"`
	Passed bool   `json:"passed"`
	// Text gives the reason in numbers.
	Text string `json:"text"`
}

// Promote applies the rules. good is nil when there is no last good policy: then a
// relative rule has nothing to compare with and passes.
func Promote(rules []GateRule, candidate, good []GateScore) (verdicts []GateVerdict, passed bool) {
	passed = true
	for _, r := range rules {
		v := r.judge(candidate, good)
		verdicts, passed = append(verdicts, v), passed && v.Passed
	}
	return verdicts, passed
}

// slack allows for the rounding of sums. It is far below the weight of one problem in a
// score.
const slack = 1e-9

func (r GateRule) judge(candidate, good []GateScore) GateVerdict {
	v := GateVerdict{Rule: r.String()}
	have, ok := meanScore(candidate, r.Stage, r.Metric)
	if !ok {
		v.Text = r.Metric + " of the candidate is unknown"
		return v
	}
	bound, origin := r.Value, ""
	if r.Relative {
		if good == nil {
			v.Passed, v.Text = true, fmt.Sprintf("%s %.4g, and no good policy to compare with", r.Metric, have)
			return v
		}
		base, ok := meanScore(good, r.Stage, r.Metric)
		if !ok {
			v.Text = r.Metric + " of the last good policy is unknown"
			return v
		}
		bound, origin = base+r.Value, fmt.Sprintf(" (last good %.4g)", base)
	}
	word := "least"
	v.Passed = have >= bound-slack
	if r.AtMost {
		word, v.Passed = "most", have <= bound+slack
	}
	v.Text = fmt.Sprintf("%s %.4g, want at %s %.4g%s", r.Metric, have, word, bound, origin)
	return v
}

// meanScore returns the mean of a metric over the problems of a stage, or of all stages; ok is
// false when a score is missing or no number.
func meanScore(scores []GateScore, stage, metric string) (value float64, ok bool) {
	sum, n := 0.0, 0
	for _, s := range scores {
		if stage != "" && s.Stage != stage {
			continue
		}
		x, known := s.Metrics[metric]
		if !known || math.IsNaN(x) || math.IsInf(x, 0) || s.Problems <= 0 {
			return 0, false
		}
		sum, n = sum+x*float64(s.Problems), n+s.Problems
	}
	if n == 0 {
		return 0, false
	}
	return sum / float64(n), true
}

// GateTable renders the scores of both as Markdown, a line for each stage; good may
// be nil.
func GateTable(candidate, good []GateScore) string {
	var b strings.Builder
	b.WriteString("| stage | problems | metric | last good | candidate |\n|---|---|---|---|---|")
	for i, c := range candidate {
		for _, metric := range slices.Sorted(maps.Keys(c.Metrics)) {
			base := ""
			if i < len(good) {
				base = fmt.Sprintf("%.4g", good[i].Metrics[metric])
			}
			fmt.Fprintf(&b, "\n| %s | %d | %s | %s | %.4g |", c.Stage, c.Problems, metric, base, c.Metrics[metric])
		}
	}
	return b.String()
}
