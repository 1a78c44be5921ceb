package paperrun

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"temper/internal/grpo"
	"temper/internal/record"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/series"
	"temper/internal/tokenizer"
	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// sampled is a step: the rows of all groups, one group after another.
type sampled struct {
	rows   []record.Row
	groups []run.GroupRecord
}

func (s *sampled) index() ([]byte, error) { return record.Index(s.rows) }

// sample draws the numbers of a step. Problems get easier, calls fail less often and
// answers get shorter while the run goes on.
func (w *writer) sample(step int) *sampled {
	s := &sampled{}
	progress := float64(step) / float64(w.Steps)
	for i := range w.Problems {
		at := (step*w.Problems + i) % (w.Problems * pool)
		rng := rl.Rand(rl.Seed(w.Seed, "paper-sized group", uint64(step), uint64(at))) //nolint:gosec // both count from 0
		easy := min(0.98, max(0.02, rng.Float64()*0.8+0.35*progress-0.1))
		if rng.IntN(8) == 0 {
			easy = float64(rng.IntN(2))
		}
		rows := make([]record.Row, w.Rollouts)
		for k := range rows {
			rows[k] = w.row(rng, problemID(at), k, easy, progress)
		}
		s.groups = append(s.groups, choose(rng, problemID(at), rows, max(1, w.Rollouts/2)))
		s.rows = append(s.rows, rows...)
	}
	return s
}

// row draws one trajectory.
func (w *writer) row(rng *rand.Rand, problem string, k int, easy, progress float64) record.Row {
	tokens := int(math.Exp(rng.NormFloat64()*0.5)*float64(w.MeanTokens)*0.88) + leastTokens/2
	r := record.Row{
		Problem: problem, Rollout: k, Turns: 1 + rng.IntN(9), PromptTokens: 200 + rng.IntN(300), ResponseTokens: min(tokens, 3*w.MeanTokens), StopReason: string(rl.StopAnswered),
		Answer: fmt.Sprint(rng.IntN(1000)), AnswerTags: 1, MeanLogprob: record.Finite(-0.05 - 0.4*rng.Float64()),
	}
	r.Calls = r.Turns - 1
	for range r.Calls {
		if rng.Float64() < 0.3-0.2*progress {
			r.FailedCalls++
		}
	}
	switch {
	case rng.IntN(1000) == 0:
		r.StopReason = string(rl.StopInfraError)
	case rng.IntN(20) == 0:
		r.StopReason, r.AnswerTags = string(rl.StopMaxTokens), 0
	case rng.Float64() < easy:
		r.Reward = 1
	}
	return r
}

const smoothing = 0.1

// choose keeps at most size trajectories of a group, correct ones with the weights of
// Resample-on-Correct, and says what became of all.
func choose(rng *rand.Rand, problem string, rows []record.Row, size int) run.GroupRecord {
	g := run.GroupRecord{ProblemID: problem, Fate: grpo.FateKept}
	var correct, wrong []int
	for i := range rows {
		r := &rows[i]
		if r.StopReason == string(rl.StopInfraError) {
			r.Fate = record.FateExcluded
			g.InfraErrors++
			continue
		}
		add(&g.All, r)
		if r.Reward == 0 {
			wrong = append(wrong, i)
			continue
		}
		add(&g.Correct, r)
		pErr := 0.5
		if r.Calls > 0 {
			pErr = float64(r.FailedCalls) / float64(r.Calls)
		}
		r.PErr, r.PFormat, r.Weight = record.Finite(pErr), record.Finite(0), record.Finite(1/(pErr+smoothing))
		g.ErrorPenalties, g.FormatPenalties = append(g.ErrorPenalties, pErr), append(g.FormatPenalties, 0)
		correct = append(correct, i)
	}
	switch {
	case len(correct)+len(wrong) == 0:
		g.Fate = grpo.FateEmpty
	case len(wrong) == 0:
		g.Fate = grpo.FateAllCorrect
	case len(correct) == 0:
		g.Fate = grpo.FateAllWrong
	}
	rng.Shuffle(len(wrong), func(i, j int) { wrong[i], wrong[j] = wrong[j], wrong[i] })
	half := min(len(correct), max(size/2, size-len(wrong)))
	for n, i := range append(correct, wrong...) {
		r := &rows[i]
		kept := n < half || n >= len(correct) && n-len(correct) < size-half
		switch {
		case g.Fate != grpo.FateKept:
			r.Fate = record.FateUniform
		case kept:
			r.Fate, r.Advantage = record.FateKept, record.Finite(2*r.Reward-1)
			g.NumSamples++
			if r.Reward > 0 {
				add(&g.KeptCorrect, r)
			}
		default:
			r.Fate = record.FateDropped
		}
	}
	return g
}

func add(t *series.Tally, r *record.Row) {
	t.Num++
	t.Calls += r.Calls
	t.Failed += r.FailedCalls
	t.Tokens += r.ResponseTokens
	t.Turns += r.Turns
	t.Reward += r.Reward
	if r.StopReason == string(rl.StopMaxTokens) {
		t.Clipped++
	}
}

// words are phrases as tokens.
type words struct {
	tok     *tokenizer.Tokenizer
	phrases [][]int32
	call    []int32
	result  []int32
}

var phrases = []string{
	"We are asked for the remainder of the sum. ", "Wait, let me check that once more. ", "So the sequence repeats with period 504. ", "Let me verify this with Python.\n",
	"However, the first term is not part of the cycle. ", "Then a(7) = 613 and a(8) = 429, ", "which gives 1009 - 613 = 396. ", "The sum of one period is 254016. ",
	"Alternatively, we use the quadratic residues modulo 1009. ", "That contradicts what the program printed, ", "because the index is off by one. ", "Now we add the remaining terms. ",
}

const code = "a, s = 17, 0\nfor n in range(40):\n    s += a\n    a = a * a % 1009\nprint(s % 1000)\n"

func newWords() (*words, error) {
	tok, err := tokenizer.Train(func(yield func(string) bool) {
		for range 3 {
			for _, p := range phrases {
				if !yield(p) {
					return
				}
			}
			if !yield(code) {
				return
			}
		}
	}, 400, []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
	if err != nil {
		return nil, err
	}
	w := &words{tok: tok, call: tok.Encode(code), result: tok.Encode("\n" + strings.Repeat("396 ", 20) + "\n")}
	for _, p := range phrases {
		w.phrases = append(w.phrases, tok.Encode(p))
	}
	return w, nil
}

// texts are the stored trajectories of a group.
func (w *writer) texts(step int, rows []record.Row) ([]byte, error) {
	packed := make([]record.Packed, len(rows))
	tokens := 0
	for i := range rows {
		t := w.trajectory(step, &rows[i])
		tokens += len(t.Tokens)
		var err error
		if packed[i], err = record.Pack(t); err != nil {
			return nil, err
		}
	}
	if record.IsLarge(tokens) {
		return record.Compact(packed)
	}
	lines := make([]rl.Trajectory, len(packed))
	for i := range packed {
		var err error
		if lines[i], err = packed[i].Unpack(); err != nil {
			return nil, err
		}
		lines[i].Text = w.words.tok.Decode(lines[i].Tokens[lines[i].PromptTokens:])
	}
	return record.Lines(lines)
}

// trajectory is one as its row says: phrases, and a call after each turn but the last.
func (w *writer) trajectory(step int, r *record.Row) *rl.Trajectory {
	t := &rl.Trajectory{
		ProblemID: r.Problem, Rollout: r.Rollout, Stage: w.stageOf(step).Index, Step: step, PolicyVersion: int64(step - 1), PromptTokens: r.PromptTokens,
		Seed: rl.Seed(w.Seed, "rollout", uint64(step), rl.Hash(r.Problem), uint64(r.Rollout)), StopReason: rl.StopReason(r.StopReason), //nolint:gosec // both count from 0
		Answer: r.Answer, AnswerTags: r.AnswerTags, Reward: r.Reward,
	}
	rng := rl.Rand(t.Seed)
	push := func(ids []int32, sampled bool) {
		for _, id := range ids {
			logprob := float32(0)
			if sampled {
				logprob = -float32(math.Round(-1000*math.Log(1-rng.Float64()*rng.Float64())) / 1000)
			}
			t.Tokens, t.LossMask, t.RolloutLogprobs = append(t.Tokens, id), append(t.LossMask, sampled), append(t.RolloutLogprobs, logprob)
		}
	}
	for len(t.Tokens) < r.PromptTokens {
		p := w.words.phrases[rng.IntN(len(w.words.phrases))]
		push(p[:min(len(p), r.PromptTokens-len(t.Tokens))], false)
	}
	each := r.ResponseTokens / r.Turns
	for turn := range r.Turns {
		start := len(t.Tokens)
		for len(t.Tokens)-start < each-len(w.words.call)-len(w.words.result) || len(t.Tokens) == start {
			push(w.words.phrases[rng.IntN(len(w.words.phrases))], true)
		}
		out := rl.Turn{Start: start, Finish: rl.FinishStop}
		if turn < r.Calls {
			push(w.words.call, true)
			out.Calls = []rl.ToolCall{{ID: fmt.Sprintf("%s-%d-%d", r.Problem, r.Rollout, turn), Name: "python", Arguments: builtin.Program{Code: code}.Arguments(), Status: status.OK, Response: "396"}}
			if turn < r.FailedCalls {
				out.Calls[0].Status, out.Calls[0].Response = status.Error, "NameError: name 'b' is not defined"
			}
		}
		if out.End = len(t.Tokens); turn < r.Calls {
			push(w.words.result, false)
		}
		t.Turns = append(t.Turns, out)
	}
	return t
}
