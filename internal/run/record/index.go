package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"temper/internal/rl"
)

// Fates of a trajectory.
const (
	FateKept     = "kept"     // the trainer got it
	FateDropped  = "dropped"  // resampling left it out
	FateUniform  = "uniform"  // all rewards of its group are equal
	FateExcluded = "excluded" // it has no reward and counts for nothing
)

// Row is what the index of a step says of one trajectory.
type Row struct {
	Problem string  `json:"problem"`
	Rollout int     `json:"rollout"`
	Reward  float64 `json:"reward"`
	Fate    string  `json:"fate"`
	// Advantage is set for a kept trajectory.
	Advantage *float64 `json:"advantage,omitempty"`
	// PErr and PFormat are the penalties of a correct trajectory, Weight is 1/(p+s) by
	// which it is drawn (arXiv 2508.20722, section 2.2.3); nil where resampling did not ask.
	PErr    *float64 `json:"p_err,omitempty"`
	PFormat *float64 `json:"p_format,omitempty"`
	Weight  *float64 `json:"weight,omitempty"`

	Turns          int    `json:"turns"`
	Calls          int    `json:"calls"`
	FailedCalls    int    `json:"failed_calls"`
	PromptTokens   int    `json:"prompt_tokens"`
	ResponseTokens int    `json:"response_tokens"`
	StopReason     string `json:"stop_reason"`
	Answer         string `json:"answer"`
	AnswerTags     int    `json:"answer_tags"`
	// MeanLogprob is the mean log-probability of the sampled tokens, nats; nil for none.
	MeanLogprob *float64 `json:"mean_logprob,omitempty"`
	// MeanEntropy is the mean of the policy's entropy at the sampled tokens, nats; nil where the
	// trainer has not said it. It is stored apart, see Entropies.
	MeanEntropy *float64 `json:"mean_entropy,omitempty"`
}

// maxIndexAnswer is how many bytes of an answer the index has.
const maxIndexAnswer = 200

// RowOf is the row of a trajectory but for its fate.
func RowOf(t *rl.Trajectory) Row {
	calls, failed := t.ToolCounts()
	r := Row{
		Problem: t.ProblemID, Rollout: t.Rollout, Reward: t.Reward, Turns: len(t.Turns), Calls: calls, FailedCalls: failed,
		PromptTokens: t.PromptTokens, ResponseTokens: t.ResponseTokens(), StopReason: string(t.StopReason),
		Answer: t.Answer[:min(len(t.Answer), maxIndexAnswer)], AnswerTags: t.AnswerTags,
	}
	sum, n := 0.0, 0
	for i, sampled := range t.LossMask {
		if sampled {
			sum += float64(t.RolloutLogprobs[i])
			n++
		}
	}
	if n > 0 {
		r.MeanLogprob = Finite(sum / float64(n))
	}
	return r
}

// Finite is a number as a row holds it: nil where JSON has no word for it.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// The index is its magic, and one section for each column: the length as a uvarint
// of a zstd frame that holds {"name": ..., "values": [...]}. A reader skips columns
// that it does not know, and an absent column leaves its field empty.
const indexMagic = "temper index 1\n"

// column is how one field of a row is stored.
type column struct {
	name string
	// at points to the field of a row.
	at func(*Row) any
}

func columns() []column {
	return []column{
		{"problem", func(r *Row) any { return &r.Problem }}, {"rollout", func(r *Row) any { return &r.Rollout }},
		{"reward", func(r *Row) any { return &r.Reward }}, {"fate", func(r *Row) any { return &r.Fate }},
		{"advantage", func(r *Row) any { return &r.Advantage }}, {"p_err", func(r *Row) any { return &r.PErr }},
		{"p_format", func(r *Row) any { return &r.PFormat }}, {"weight", func(r *Row) any { return &r.Weight }},
		{"turns", func(r *Row) any { return &r.Turns }}, {"calls", func(r *Row) any { return &r.Calls }},
		{"failed_calls", func(r *Row) any { return &r.FailedCalls }}, {"prompt_tokens", func(r *Row) any { return &r.PromptTokens }},
		{"response_tokens", func(r *Row) any { return &r.ResponseTokens }}, {"stop_reason", func(r *Row) any { return &r.StopReason }},
		{"answer", func(r *Row) any { return &r.Answer }}, {"answer_tags", func(r *Row) any { return &r.AnswerTags }},
		{"mean_logprob", func(r *Row) any { return &r.MeanLogprob }},
	}
}

// Index writes the index of a step. Equal rows give equal bytes.
func Index(rows []Row) ([]byte, error) { return writeColumns(rows, columns()) }

func writeColumns(rows []Row, list []column) ([]byte, error) {
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	out := []byte(indexMagic)
	for _, c := range list {
		values := make([]any, len(rows))
		for i := range rows {
			values[i] = c.at(&rows[i])
		}
		data, err := json.Marshal(map[string]any{"name": c.name, "values": values})
		if err != nil {
			return nil, fmt.Errorf("index column %s: %w", c.name, err)
		}
		frame := enc.EncodeAll(data, nil)
		out = append(binary.AppendUvarint(out, uint64(len(frame))), frame...)
	}
	return out, nil
}

var errIndex = errors.New("index is damaged")

// ReadIndex reads the index of a step.
func ReadIndex(data []byte) ([]Row, error) {
	known := map[string]column{}
	for _, c := range append(columns(), entropyColumn()) {
		known[c.name] = c
	}
	var rows []Row
	err := eachColumn(data, func(name string, values json.RawMessage) error {
		n := countValues(values)
		if rows == nil { // the first column says how many rows there are
			rows = make([]Row, n)
		}
		if n != len(rows) {
			return fmt.Errorf("%w: column %q has %d values, want %d", errIndex, name, n, len(rows))
		}
		field, ok := known[name]
		if !ok {
			return nil
		}
		if err := fillColumn(rows, field, values); err != nil {
			return fmt.Errorf("%w: column %q: %w", errIndex, name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}
