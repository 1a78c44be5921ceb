package ui

import (
	"cmp"

	"temper/internal/run/record"
)

// columnsOf transposes rows.
func columnsOf(rows []record.Row) Columns {
	n := len(rows)
	numbers := map[string]func(*record.Row) any{
		"rollout": func(r *record.Row) any { return r.Rollout }, "reward": func(r *record.Row) any { return r.Reward },
		"advantage": func(r *record.Row) any { return r.Advantage }, "p_err": func(r *record.Row) any { return r.PErr },
		"p_format": func(r *record.Row) any { return r.PFormat }, "weight": func(r *record.Row) any { return r.Weight },
		"turns": func(r *record.Row) any { return r.Turns }, "calls": func(r *record.Row) any { return r.Calls },
		"failed_calls": func(r *record.Row) any { return r.FailedCalls }, "prompt_tokens": func(r *record.Row) any { return r.PromptTokens },
		"response_tokens": func(r *record.Row) any { return r.ResponseTokens }, "answer_tags": func(r *record.Row) any { return r.AnswerTags },
		"mean_logprob": func(r *record.Row) any { return r.MeanLogprob }, "mean_entropy": func(r *record.Row) any { return r.MeanEntropy },
		"answer": func(r *record.Row) any { return r.Answer },
	}
	words := map[string]func(*record.Row) string{
		"problem": func(r *record.Row) string { return r.Problem }, "fate": func(r *record.Row) string { return cmp.Or(r.Fate, notRecorded) },
		"stop_reason": func(r *record.Row) string { return r.StopReason },
	}
	out := Columns{Rows: n, Data: map[string]any{}}
	for name, of := range numbers {
		column := make([]any, n)
		for i := range rows {
			column[i] = of(&rows[i])
		}
		out.Data[name] = column
	}
	for name, of := range words { // few words, many rows
		d := Words{Words: []string{}, At: make([]int, n)}
		place := map[string]int{}
		for i := range rows {
			word := of(&rows[i])
			at, ok := place[word]
			if !ok {
				at = len(d.Words)
				place[word] = at
				d.Words = append(d.Words, word)
			}
			d.At[i] = at
		}
		out.Data[name] = d
	}
	return out
}

// Words is a column of words: row i has the word Words[At[i]].
type Words struct {
	Words []string `json:"words"`
	At    []int    `json:"at"`
}

// columnsOfIndex returns the columns of an index as stored, with empty words replaced.
func columnsOfIndex(c record.Columns) Columns {
	out := Columns{Rows: c.Num, Data: map[string]any{}, Source: fromIndex}
	for name, values := range c.Values {
		out.Data[name] = values
	}
	for _, name := range []string{"problem", "fate", "stop_reason"} {
		words, at, ok := c.Words(name)
		if !ok {
			words, at = []string{notRecorded}, make([]int, c.Num)
		}
		for i, word := range words {
			words[i] = cmp.Or(word, notRecorded)
		}
		out.Data[name] = Words{words, at}
	}
	return out
}
