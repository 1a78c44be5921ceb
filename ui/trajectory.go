package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run/record"
)

// TurnView is one generation with the results of its calls.
type TurnView struct {
	Start int `json:"start"`
	End   int `json:"end"`
	// Text is the policy's text, Result the text between it and the next turn.
	Text   string        `json:"text"`
	Result string        `json:"result,omitempty"`
	Finish string        `json:"finish"`
	Calls  []rl.ToolCall `json:"calls,omitempty"`
	// MeanLogprob is the mean over the tokens of the turn, in nats.
	MeanLogprob *float64 `json:"mean_logprob,omitempty"`
}

// TrajectoryView is a trajectory as a page shows it.
type TrajectoryView struct {
	record.Row
	Step          int        `json:"step"`
	PolicyVersion int64      `json:"policy_version"`
	Seed          string     `json:"seed"`
	Prompt        string     `json:"prompt"`
	Problem       rl.Problem `json:"problem_data"`
	TurnViews     []TurnView `json:"conversation"`
	Details       string     `json:"reward_details,omitempty"`
	Err           string     `json:"err,omitempty"`
	Why           string     `json:"why,omitempty"`
	// Times tells why Spent is missing; empty where the run records times.
	Times string     `json:"times"`
	Spent *SpentView `json:"spent,omitempty"`
	// Rollouts holds the rollouts of the group, for links to the next one.
	Rollouts []int `json:"rollouts"`
	// Cut tells how many bytes of text are left out; empty for none.
	Cut string `json:"cut,omitempty"`
}

// maxText bounds each text of an answer, in bytes; the record has all of it.
const maxText = 200 << 10

func (sp *stepPages) showTrajectory(r *request) (TrajectoryView, error) {
	ctx := r.Context()
	h, step, err := sp.reader.openStep(r)
	if err != nil {
		return TrajectoryView{}, err
	}
	t, ts, err := groupMember(ctx, r, h, step)
	if err != nil {
		return TrajectoryView{}, err
	}
	var p rl.Problem
	var rows []record.Row
	var cfg config.Run
	g, inGroup := errgroup.WithContext(ctx) // one round trip to a far store
	g.Go(func() (err error) { p, err = sp.reader.problem(inGroup, h, step, t.ProblemID); return err })
	g.Go(func() (err error) { rows, _, _, err = sp.reader.groupRows(inGroup, h, step, t.ProblemID); return err })
	g.Go(func() (err error) { cfg, err = h.Config(inGroup); return err })
	if err := g.Wait(); err != nil {
		return TrajectoryView{}, err
	}
	out, err := view(ctx, h, t, p)
	if err != nil {
		return out, err
	}
	e := newExplainer(rows, cfg.At(step).RL)
	for _, row := range rows {
		if row.Rollout == t.Rollout {
			out.Row, out.Why = row, e.sentence(row)
		}
	}
	for i := range ts {
		out.Rollouts = append(out.Rollouts, ts[i].Rollout)
	}
	err = sp.addTimes(ctx, h, t, &out)
	return out, err
}

// groupMember returns the trajectory that the path names, and its group.
func groupMember(ctx context.Context, r *request, h *history.Run, step int) (*rl.Trajectory, []rl.Trajectory, error) {
	k, err := r.number("k")
	if err != nil {
		return nil, nil, err
	}
	id := r.PathValue("problem")
	if !isProblemID(id) {
		return nil, nil, problem{http.StatusBadRequest, fmt.Sprintf("problem %s: want visible ASCII without '/'", brief(id))}
	}
	ts, err := h.Group(ctx, step, id)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, nil, missing("the trajectories of problem %s in step %d are not in the store: the step has no such problem, or checkpoint.keep_trajectories has deleted them", brief(id), step)
	}
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(ts, func(t rl.Trajectory) bool { return t.Rollout == k })
	if i < 0 {
		return nil, nil, missing("problem %s of step %d has no rollout %d", brief(id), step, k)
	}
	return &ts[i], ts, nil
}

// isProblemID reports whether id can be the id of a problem, and so a part of a key.
func isProblemID(id string) bool {
	if id == "" || len(id) > 200 || id == "." || id == ".." {
		return false
	}
	return !slices.ContainsFunc([]byte(id), func(c byte) bool { return c <= ' ' || c > '~' || c == '/' || c == '\\' })
}

// view splits a trajectory into its turns.
func view(ctx context.Context, h *history.Run, t *rl.Trajectory, p rl.Problem) (TrajectoryView, error) {
	out := TrajectoryView{
		Row: record.RowOf(t), Step: t.Step, PolicyVersion: t.PolicyVersion, Seed: fmt.Sprint(t.Seed), Problem: p, Details: t.Details, Err: t.Err,
		Times: notRecorded, TurnViews: []TurnView{}, Rollouts: []int{},
	}
	pieces, err := history.RolloutsOf(h).Pieces(ctx, t.Tokens)
	if err != nil {
		return out, err
	}
	c := &cutter{pieces: pieces}
	out.Prompt = c.text(0, t.PromptTokens)
	for i := range t.Turns {
		next := len(t.Tokens)
		if i+1 < len(t.Turns) {
			next = t.Turns[i+1].Start
		}
		out.TurnViews = append(out.TurnViews, c.turn(t, &t.Turns[i], next))
	}
	if c.cut > 0 {
		out.Cut = fmt.Sprintf("%d bytes of long texts are left out here; temper export --format json prints all", c.cut)
	}
	return out, nil
}

// cutter joins the texts of tokens, up to maxText each, and counts the bytes that it omits.
type cutter struct {
	pieces []string
	cut    int
}

// text returns the text of the tokens [from, to).
func (c *cutter) text(from, to int) string {
	from, to = max(0, min(from, len(c.pieces))), max(0, min(to, len(c.pieces)))
	var b []byte
	for i := from; i < to; i++ {
		if len(b)+len(c.pieces[i]) > maxText {
			c.cut += len(c.pieces[i])
			continue
		}
		b = append(b, c.pieces[i]...)
	}
	return string(b)
}

// turn returns the view of a turn whose results end before token next.
func (c *cutter) turn(t *rl.Trajectory, turn *rl.Turn, next int) TurnView {
	v := TurnView{Start: turn.Start, End: turn.End, Finish: string(turn.Finish), Text: c.text(turn.Start, turn.End), Result: c.text(turn.End, next)}
	for _, call := range turn.Calls {
		for _, field := range []*string{&call.Response, &call.Arguments} {
			if len(*field) > maxText {
				c.cut += len(*field) - maxText
				*field = (*field)[:maxText]
			}
		}
		v.Calls = append(v.Calls, call)
	}
	sum := 0.0
	from, to := max(0, min(turn.Start, len(t.RolloutLogprobs))), max(0, min(turn.End, len(t.RolloutLogprobs)))
	for i := from; i < to; i++ {
		sum += float64(t.RolloutLogprobs[i])
	}
	if n := to - from; n > 0 {
		v.MeanLogprob = record.Finite(sum / float64(n))
	}
	return v
}

// TokensView holds the tokens of a trajectory. Missing names what is not recorded.
type TokensView struct {
	PromptTokens int      `json:"prompt_tokens"`
	IDs          []int32  `json:"ids"`
	Texts        []string `json:"texts"`
	// Mask is 1 where the policy sampled the token.
	Mask []int `json:"mask"`
	// Logprobs holds the engine's log-probabilities in nats; null for tokens not sampled.
	Logprobs []*Number `json:"logprobs"`
	// TrainerLogprobs holds the trainer's log-probabilities under the policy before the update,
	// Entropies the entropies of the sampling distributions, both in nats; null for tokens not
	// sampled.
	TrainerLogprobs []*Number `json:"trainer_logprobs,omitempty"`
	Entropies       []*Number `json:"entropies,omitempty"`
	// Missing names what this run does not record of each token.
	Missing []string `json:"missing"`
}

// maxTokens bounds the tokens of an answer.
const maxTokens = 200_000

func (sp *stepPages) showTokens(r *request) (TokensView, error) {
	h, step, err := sp.reader.openStep(r)
	if err != nil {
		return TokensView{}, err
	}
	t, _, err := groupMember(r.Context(), r, h, step)
	if err != nil {
		return TokensView{}, err
	}
	out, err := tokensOf(r.Context(), h, t)
	if err != nil {
		return out, err
	}
	stats, ok, err := history.RolloutsOf(h).TokenStats(r.Context(), step, t.ProblemID, t.Rollout)
	if r.immutable = err == nil && ok; !r.immutable {
		return out, err
	}
	out.addStats(stats)
	return out, nil
}

// addStats adds the trainer's figures for the tokens, where they fit the trajectory.
func (v *TokensView) addStats(stats record.TokenStats) {
	sampled := 0
	for _, m := range v.Mask {
		sampled += m
	}
	if len(stats.Entropies) < sampled || len(stats.Differences) < sampled {
		return
	}
	v.TrainerLogprobs, v.Entropies = make([]*Number, len(v.Mask)), make([]*Number, len(v.Mask))
	k := 0
	for i, m := range v.Mask {
		if m == 0 {
			continue
		}
		logprob, entropy := *v.Logprobs[i]+Number(stats.Differences[k]), Number(stats.Entropies[k])
		v.TrainerLogprobs[i], v.Entropies[i] = &logprob, &entropy
		k++
	}
	v.Missing = slices.DeleteFunc(v.Missing, func(m string) bool { return m == missingTrainer || m == missingEntropy })
}

// Figures of tokens that a run need not record.
const (
	missingTrainer = "log-probability of the trainer"
	missingEntropy = "entropy (tracker.token_stats records both of kept trajectories)"
)

func tokensOf(ctx context.Context, h *history.Run, t *rl.Trajectory) (TokensView, error) {
	n := min(len(t.Tokens), maxTokens)
	out := TokensView{
		PromptTokens: t.PromptTokens, IDs: t.Tokens[:n], Mask: make([]int, n), Logprobs: make([]*Number, n),
		Missing: []string{missingTrainer, missingEntropy},
	}
	if n < len(t.Tokens) {
		out.Missing = append(out.Missing, fmt.Sprintf("%d tokens beyond the first %d", len(t.Tokens)-n, n))
	}
	var err error
	if out.Texts, err = history.RolloutsOf(h).Pieces(ctx, t.Tokens[:n]); err != nil {
		return out, err
	}
	for i := range n {
		if t.LossMask[i] {
			lp := Number(t.RolloutLogprobs[i])
			out.Mask[i], out.Logprobs[i] = 1, &lp
		}
	}
	return out, nil
}
