package grpo

import (
	"strings"

	"temper/internal/rl"
)

// Released has the counts that the released code takes from the text of a response.
type Released struct {
	// Results counts the tool results that the policy saw, Errors the ones with the word
	// "error" in any case.
	Results, Errors int
	// Answers counts the closed blocks of <answer> anywhere in the text. Unbalanced reports
	// a tag without a partner in the arguments or the result of a call.
	Answers    int
	Unbalanced bool
	// Turns counts the turns that begin and end in the response: not the first one, whose
	// beginning is in the prompt, and no turn that was cut.
	Turns int
}

// AsReleased counts like the released code, where a call beyond rollout.max_calls_per_turn
// has no result, nor has a call whose result did not fit into the response.
func AsReleased(t *rl.Trajectory) Released {
	out := Released{Answers: t.AnswerTags}
	for i := range t.Turns {
		turn := &t.Turns[i]
		if i > 0 && turn.Finish == rl.FinishStop {
			out.Turns++
		}
		unseen := i == len(t.Turns)-1 && t.StopReason == rl.StopMaxTokens
		for k := range turn.Calls {
			call := &turn.Calls[k]
			out.addTags(call.Arguments)
			if unseen || call.Surplus() {
				continue
			}
			out.addTags(call.Response)
			out.Results++
			if strings.Contains(strings.ToLower(call.Response), "error") {
				out.Errors++
			}
		}
	}
	return out
}

const openAnswer, closeAnswer = "<answer>", "</answer>"

// addTags counts the answers in the arguments or in the result of a call.
func (r *Released) addTags(text string) {
	opened, closed := strings.Count(text, openAnswer), strings.Count(text, closeAnswer)
	pairs := 0
	for {
		_, rest, found := strings.Cut(text, openAnswer)
		if !found {
			break
		}
		if _, text, found = strings.Cut(rest, closeAnswer); !found {
			break
		}
		pairs++
	}
	r.Answers += pairs
	r.Unbalanced = r.Unbalanced || opened != pairs || closed != pairs
}

// Penalties returns p_err and p_format of the released code.
func (r Released) Penalties() (toolErrorRate, formatPenalty float64) {
	toolErrorRate = noCallPenalty
	if r.Results > 0 {
		toolErrorRate = rl.ToolErrorRate(r.Results, r.Errors)
	}
	if r.Answers == 0 || r.Unbalanced || r.Turns == 0 {
		return toolErrorRate, 1
	}
	return toolErrorRate, min(1, float64(r.Answers-1)/float64(r.Turns))
}
