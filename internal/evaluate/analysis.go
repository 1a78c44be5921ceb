package evaluate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/internal/rl"
)

// Class tells where a sampled token stands.
type Class string

// The classes. A token has the first that fits.
const (
	Format     Class = "format"     // a control token, such as the mark of a call
	Code       Class = "code"       // inside a tool call
	Answer     Class = "answer"     // inside the answer
	Reflection Class = "reflection" // text right after a tool's response
	Reasoning  Class = "reasoning"  // all other text
)

// Classes lists them in the order of reports.
func Classes() []Class { return []Class{Reasoning, Reflection, Code, Answer, Format} }

// Options define how tokens are judged.
type Options struct {
	// Top is the share of a trajectory's sampled tokens that counts as its most uncertain
	// ones, above 0 and at most 1. The paper has 0.2.
	Top float64
	// Window is how many tokens of text after a tool's response are reflection.
	Window int
}

// Validate reports all faults.
func (o Options) Validate() error {
	if !(o.Top > 0 && o.Top <= 1) || o.Window < 1 {
		return fmt.Errorf("top %v, window %d: want more than 0 and at most 1, and at least 1", o.Top, o.Window)
	}
	return nil
}

// Vocabulary describes token ids.
type Vocabulary interface {
	// Decode is the text of ids; a token may be part of a character.
	Decode(ids []int32) string
	// IsSpecial reports control tokens.
	IsSpecial(id int32) bool
}

// Token is one token of a response.
type Token struct {
	Text string `json:"text"`
	// Sampled is false for the text of tools, which has nothing below but Turn.
	Sampled bool    `json:"sampled"`
	Entropy float64 `json:"entropy"` // nats
	Logprob float64 `json:"logprob"` // nats
	Class   Class   `json:"class,omitempty"`
	Turn    int     `json:"turn"`
	// Since counts the sampled tokens of the turn before this one, in turns that follow a
	// tool's response; -1 in others.
	Since int  `json:"since"`
	Top   bool `json:"top"` // among the most uncertain ones of the trajectory
}

// Trajectory is a judged response.
type Trajectory struct {
	ProblemID string  `json:"problem_id"`
	Rollout   int     `json:"rollout"`
	Reward    float64 `json:"reward"`
	Tokens    []Token `json:"tokens"`
}

// JudgeTokens classifies the response of a trajectory. entropy and logprob belong to its tokens
// one by one.
func JudgeTokens(t *rl.Trajectory, entropy, logprob []float32, v Vocabulary, o Options) (Trajectory, error) {
	if len(entropy) != len(t.Tokens) || len(logprob) != len(t.Tokens) || len(t.LossMask) != len(t.Tokens) {
		return Trajectory{}, fmt.Errorf("problem %s, rollout %d: %d tokens with %d entropies, %d log-probabilities and a mask of %d",
			t.ProblemID, t.Rollout, len(t.Tokens), len(entropy), len(logprob), len(t.LossMask))
	}
	out := Trajectory{ProblemID: t.ProblemID, Rollout: t.Rollout, Reward: t.Reward, Tokens: make([]Token, t.ResponseTokens())}
	for i := range out.Tokens {
		at := t.PromptTokens + i
		out.Tokens[i] = Token{Text: v.Decode(t.Tokens[at : at+1]), Sampled: t.LossMask[at], Since: -1}
		if t.LossMask[at] {
			out.Tokens[i].Entropy, out.Tokens[i].Logprob = float64(entropy[at]), float64(logprob[at])
		}
	}
	for n, turn := range t.Turns {
		responded := n > 0 && len(t.Turns[n-1].Calls) > 0
		out.judgeTurn(t, turn, n, responded, v, o)
	}
	out.markTop(o.Top)
	return out, nil
}

// judgeTurn classifies the tokens of a turn.
func (out *Trajectory) judgeTurn(t *rl.Trajectory, turn rl.Turn, number int, responded bool, v Vocabulary, o Options) {
	tokens := out.Tokens[turn.Start-t.PromptTokens : turn.End-t.PromptTokens]
	var text strings.Builder
	for _, k := range tokens {
		text.WriteString(k.Text)
	}
	calls, answers := between(text.String(), "<tool_call>", "</tool_call>"), between(text.String(), "<answer>", "</answer>")
	at := 0
	for i := range tokens {
		k := &tokens[i]
		k.Turn = number
		if responded {
			k.Since = i
		}
		end := at + len(k.Text)
		switch {
		case v.IsSpecial(t.Tokens[turn.Start+i]):
			k.Class = Format
		case calls.overlap(at, end):
			k.Class = Code
		case answers.overlap(at, end):
			k.Class = Answer
		case responded && i < o.Window:
			k.Class = Reflection
		default:
			k.Class = Reasoning
		}
		at = end
	}
}

// markTop marks the share of the sampled tokens with the highest entropy, the earlier ones
// of equals. Their number is rounded down, and is at least one.
func (out *Trajectory) markTop(share float64) {
	var sampled []int
	for i, k := range out.Tokens {
		if k.Sampled {
			sampled = append(sampled, i)
		}
	}
	slices.SortStableFunc(sampled, func(a, b int) int { return cmp.Compare(out.Tokens[b].Entropy, out.Tokens[a].Entropy) })
	n := min(len(sampled), max(1, int(math.Floor(share*float64(len(sampled))+1e-9))))
	for _, i := range sampled[:n] {
		out.Tokens[i].Top = true
	}
}

// spans are parts of a text, as pairs of a beginning and an end.
type spans [][2]int

// between finds what stands between two marks. A last part without an end reaches to the
// text's end.
func between(text, begin, end string) (out spans) {
	for at := 0; ; {
		i := strings.Index(text[at:], begin)
		if i < 0 {
			return out
		}
		from := at + i + len(begin)
		n := strings.Index(text[from:], end)
		if n < 0 {
			return append(out, [2]int{from, len(text)})
		}
		out = append(out, [2]int{from, from + n})
		at = from + n + len(end)
	}
}

func (s spans) overlap(begin, end int) bool {
	return slices.ContainsFunc(s, func(p [2]int) bool { return begin < p[1] && end > p[0] })
}
