package evaluate

import (
	"fmt"
	"slices"
	"strings"

	"temper/internal/openai/chatclient"
	"temper/internal/rl"
)

// Report is the result of an evaluation.
type Report struct {
	Model string      `json:"model"`
	Seed  uint64      `json:"seed"`
	Sets  []SetReport `json:"sets"`
	// Against is the model of an earlier evaluation that this one is compared with.
	Against string `json:"against,omitempty"`
}

// SetReport is the result of a set.
type SetReport struct {
	Set
	NumProblems int `json:"problems"`
	NumSamples  int `json:"samples"`
	// Average is avg@k with k all samples of a problem.
	Average Estimate `json:"avg"`
	// At has pass@k and maj@k for k = 1, 2, 4 and so on, and for all samples.
	At []AtK `json:"at_k"`
	// MeanTokens were sampled; turns and calls too are of a sample.
	MeanTokens    float64 `json:"mean_tokens"`
	MeanTurns     float64 `json:"mean_turns"`
	MeanCalls     float64 `json:"mean_calls"`
	ToolErrorRate float64 `json:"tool_error_rate"`
	// Cut is the share of samples that did not end by themselves.
	Cut float64 `json:"cut"`
	// Compared is the difference to the evaluation that this one is compared with.
	Compared *Difference `json:"compared,omitempty"`
}

// AtK is pass@k and maj@k.
type AtK struct {
	K        int      `json:"k"`
	Pass     Estimate `json:"pass"`
	Majority Estimate `json:"maj"`
}

// Summarize makes the report of samples. Errors: a problem with fewer samples than its set
// asks for.
func Summarize(c Config, samples []Sample) (Report, error) {
	out := Report{Model: c.Label, Seed: c.Seed}
	for _, set := range c.Sets {
		r, err := summarize(set, samples)
		if err != nil {
			return out, err
		}
		out.Sets = append(out.Sets, r)
	}
	return out, nil
}

func summarize(set Set, samples []Sample) (SetReport, error) {
	r := SetReport{Set: set, NumProblems: len(set.Problems)}
	problems := problemsOf(set, samples)
	var tokens, turns, calls, failed, cut int
	for _, s := range samples {
		if s.Set != set.Name || s.Sample >= set.Rollouts {
			continue
		}
		r.NumSamples++
		tokens, turns, calls, failed = tokens+s.Tokens, turns+s.Turns, calls+s.Calls, failed+s.Failed
		if s.Finish != chatclient.FinishStop {
			cut++
		}
	}
	for _, p := range problems {
		if len(p.Correct) < set.Rollouts {
			return r, fmt.Errorf("set %s: problem %s has %d samples, want %d", set.Name, p.ID, len(p.Correct), set.Rollouts)
		}
	}
	n := float64(max(1, r.NumSamples))
	r.MeanTokens, r.MeanTurns, r.MeanCalls, r.Cut = float64(tokens)/n, float64(turns)/n, float64(calls)/n, float64(cut)/n
	r.ToolErrorRate = rl.ToolErrorRate(calls, failed)
	r.Average = Average(problems)
	for k := 1; ; k = min(2*k, set.Rollouts) {
		pass, err := PassAt(problems, k)
		if err != nil {
			return r, err
		}
		majority, err := MajorityAt(problems, k)
		if err != nil {
			return r, err
		}
		r.At = append(r.At, AtK{K: k, Pass: pass, Majority: majority})
		if k == set.Rollouts {
			return r, nil
		}
	}
}

// problemsOf groups the samples of a set by problem, in the order of the set.
func problemsOf(set Set, samples []Sample) []Problem {
	at := make(map[string]int, len(set.Problems))
	out := make([]Problem, len(set.Problems))
	for i, p := range set.Problems {
		at[p.ID], out[i].ID = i, p.ID
	}
	for _, s := range samples {
		i, ok := at[s.Problem]
		if !ok || s.Set != set.Name || s.Sample >= set.Rollouts {
			continue
		}
		out[i].Correct = append(out[i].Correct, s.Correct)
		out[i].Answers = append(out[i].Answers, strings.ToLower(strings.Join(strings.Fields(s.Extracted), "")))
	}
	return out
}

// Compare adds the paired comparison with the samples of another model, on the sets and
// problems that both have.
func (r *Report) Compare(c Config, samples, others []Sample, label string) error {
	r.Against = label
	compared := false
	for i := range r.Sets {
		set := c.Sets[i]
		of := func(samples []Sample) []Problem {
			return slices.DeleteFunc(problemsOf(set, samples), func(p Problem) bool { return len(p.Correct) == 0 })
		}
		d := ComparePaired(of(others), of(samples))
		if d.Problems > 0 {
			r.Sets[i].Compared, compared = &d, true
		}
	}
	if !compared {
		return fmt.Errorf("--against %s: it shares no problem with the sets that are evaluated", label)
	}
	return nil
}

// Markdown is the report for people.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Evaluation of %s\n\nIntervals are of 95 %% over problems. avg@k is the mean of all k samples of a problem.\n\n", oneLine(r.Model))
	fmt.Fprintln(&b, "| set | problems | samples each | avg@k | pass@k | maj@k | tokens | turns | calls | tool errors | cut | temperature | turns at most | tokens at most | mode |")
	fmt.Fprintln(&b, "|---|---:|---:|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	for _, s := range r.Sets {
		last := s.At[len(s.At)-1]
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %.1f | %.2f | %.2f | %.1f %% | %.1f %% | %g | %d | %d | %s |\n", s.Name, s.NumProblems, s.Rollouts,
			percent(s.Average), percent(last.Pass), percent(last.Majority), s.MeanTokens, s.MeanTurns, s.MeanCalls, 100*s.ToolErrorRate, 100*s.Cut, s.Temperature, s.MaxTurns, s.MaxTokens, s.Mode)
	}
	for _, s := range r.Sets {
		if len(s.At) < 2 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| k | pass@k | maj@k |\n|---:|---|---|\n", s.Name)
		for _, at := range s.At {
			fmt.Fprintf(&b, "| %d | %s | %s |\n", at.K, percent(at.Pass), percent(at.Majority))
		}
	}
	if r.Against == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "\n## Against %s\n\n| set | problems | difference of avg@k | better on | worse on | p |\n|---|---:|---|---:|---:|---:|\n", oneLine(r.Against))
	for _, s := range r.Sets {
		if d := s.Compared; d != nil {
			fmt.Fprintf(&b, "| %s | %d | %+.2f (%+.2f to %+.2f) | %d | %d | %.4f |\n", s.Name, d.Problems, 100*d.Value, 100*d.Low, 100*d.High, d.Better, d.Worse, d.P)
		}
	}
	return b.String()
}

// oneLine is a name that a server or a folder gave, safe for a terminal.
func oneLine(name string) string { return chatclient.Escape(strings.Join(strings.Fields(name), " ")) }

func percent(e Estimate) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", 100*e.Value, 100*e.Low, 100*e.High)
}
