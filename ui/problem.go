package ui

import (
	"hash/fnv"
	"io"
	"slices"

	"temper/internal/run/record"
)

// ProblemStep is the result of a problem in a step.
type ProblemStep struct {
	Step    int `json:"step"`
	Num     int `json:"num"`
	Correct int `json:"correct"`
	Kept    int `json:"kept"`
}

// HistoryView is a problem in all steps that sampled it.
type HistoryView struct {
	Steps []ProblemStep `json:"steps"`
	Last  int           `json:"last"` // step of the run
	// Left counts the steps that the time did not suffice to read: ask again.
	Left int `json:"left"`
}

func (fi *finder) showProblem(r *request) (HistoryView, error) {
	out := HistoryView{Steps: []ProblemStep{}}
	h, err := fi.reader.open(r)
	if err != nil {
		return out, err
	}
	entry, err := h.Entry(r.Context())
	if err != nil {
		return out, err
	}
	tables, err := fi.tables(r.Context(), h, entry.Step)
	if err != nil {
		return out, err
	}
	out.Last = entry.Step
	sum := sumOf(r.PathValue("problem"))
	for i, t := range tables {
		if t == nil {
			out.Left++
			continue
		}
		if found, ok := t.count(sum); ok {
			found.Step = i + 1
			out.Steps = append(out.Steps, found)
		}
	}
	return out, nil
}

func sumOf(problem string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, problem) // a hash takes everything
	return h.Sum64()
}

// count looks at the rows of a problem; ok is false where the step has none.
func (t *table) count(sum uint64) (out ProblemStep, ok bool) {
	at := slices.IndexFunc(t.groups, func(g packedGroup) bool { return g.problem == sum })
	reward, fate := t.columns["reward"], t.columns["fate"]
	if at < 0 || reward == nil || fate == nil {
		return out, false
	}
	end := t.rows
	if at+1 < len(t.groups) {
		end = int(t.groups[at+1].first)
	}
	for i := int(t.groups[at].first); i < end; i++ {
		out.Num++
		if reward.at(i) > 0 {
			out.Correct++
		}
		if fate.words[fate.codes[i]] == record.FateKept {
			out.Kept++
		}
	}
	return out, true
}

// at is the number in a row.
func (p *packedColumn) at(i int) float64 {
	switch {
	case p.short != nil:
		return float64(p.short[i])
	case p.long != nil:
		return p.long[i]
	default:
		return p.values[p.codes[i]]
	}
}
