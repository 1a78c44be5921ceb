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
	"temper/internal/record"
	"temper/internal/rl"
	"temper/internal/run"
)

// TurnView is one generation with what its calls gave.
type TurnView struct {
	Start int `json:"start"`
	End   int `json:"end"`
	// Text is what the policy wrote, Result the tokens that follow it up to the next turn.
	Text   string        `json:"text"`
	Result string        `json:"result,omitempty"`
	Finish string        `json:"finish"`
	Calls  []rl.ToolCall `json:"calls,omitempty"`
	// MeanLogprob is over the tokens of the turn, nats.
	MeanLogprob *float64 `json:"mean_logprob,omitempty"`
}

// TrajectoryView is a trajectory for people.
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
	// Times is empty where the times of its turns and calls are recorded, in Spent.
	Times string     `json:"times"`
	Spent *SpentView `json:"spent,omitempty"`
	// Rollouts are those of the group, for the way to the next one.
	Rollouts []int `json:"rollouts"`
	// Cut says how much of the texts was left out, empty for nothing.
	Cut string `json:"cut,omitempty"`
}

// maxText bounds each text of an answer: a page shows no more, and the record has all.
const maxText = 200 << 10

func (s *Server) showTrajectory(r *request) (TrajectoryView, error) {
	ctx := r.Context()
	h, step, err := s.stepOf(r)
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
	g, inGroup := errgroup.WithContext(ctx) // a far store answers them all in the time of one
	g.Go(func() (err error) { p, err = s.problem(inGroup, h, step, t.ProblemID); return err })
	g.Go(func() (err error) { rows, _, _, err = s.groupRows(inGroup, h, step, t.ProblemID); return err })
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
	err = s.addTimes(ctx, h, t, &out)
	return out, err
}

// groupMember is the trajectory that the path names, with its group.
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

// isProblemID reports whether a text can be the id of a problem, and so a part of a key.
func isProblemID(id string) bool {
	if id == "" || len(id) > 200 || id == "." || id == ".." {
		return false
	}
	return !slices.ContainsFunc([]byte(id), func(c byte) bool { return c <= ' ' || c > '~' || c == '/' || c == '\\' })
}

// view cuts a trajectory into its turns.
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
		out.Cut = fmt.Sprintf("%d bytes of long texts are left out here; temper run rollouts prints all", c.cut)
	}
	return out, nil
}

// cutter joins the texts of tokens, none longer than maxText, and counts what it left out.
type cutter struct {
	pieces []string
	cut    int
}

// text is that of the tokens from, inclusive, to to.
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

// turn is a turn whose results end before the token next.
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

// TokensView are the tokens of a trajectory. What is not recorded is absent.
type TokensView struct {
	PromptTokens int      `json:"prompt_tokens"`
	IDs          []int32  `json:"ids"`
	Texts        []string `json:"texts"`
	// Mask is 1 where the policy sampled the token.
	Mask []int `json:"mask"`
	// Logprobs are the engine's, nats; null where the token was not sampled.
	Logprobs []*Number `json:"logprobs"`
	// TrainerLogprobs are those of the policy before the update, by the trainer, and Entropies
	// those of the distributions that the tokens were drawn from, nats; null where the token
	// was not sampled.
	TrainerLogprobs []*Number `json:"trainer_logprobs,omitempty"`
	Entropies       []*Number `json:"entropies,omitempty"`
	// Missing names what this run does not record of each token.
	Missing []string `json:"missing"`
}

// maxTokens bounds the tokens of an answer.
const maxTokens = 200_000

func (s *Server) showTokens(r *request) (TokensView, error) {
	h, step, err := s.stepOf(r)
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

// addStats adds what the trainer has said of the tokens, where it fits the trajectory.
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

// What a run need not record of its tokens.
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

// EvalRow is an evaluation with the name by which its trajectories are found.
type EvalRow struct {
	Name string `json:"name"`
	run.Evaluation
}

func (s *Server) showEvals(r *request) ([]EvalRow, error) {
	h, err := s.run(r)
	if err != nil {
		return nil, err
	}
	evals, err := h.Evaluations(r.Context())
	out := []EvalRow{}
	for _, e := range evals {
		out = append(out, EvalRow{Name: evalName(e), Evaluation: e})
	}
	return out, err
}

func evalName(e run.Evaluation) string {
	if e.Set != "" {
		return fmt.Sprintf("set-%s-%d", e.Set, e.PolicyVersion)
	}
	return fmt.Sprintf("%d-%s-%d", e.Stage, e.Label, e.PolicyVersion)
}

// evaluation finds an evaluation of the run by name: a key is made of what is stored,
// never of the request.
func (s *Server) evaluation(r *request) (*history.Run, run.Evaluation, []rl.Trajectory, error) {
	h, err := s.run(r)
	if err != nil {
		return nil, run.Evaluation{}, nil, err
	}
	evals, err := h.Evaluations(r.Context())
	if err != nil {
		return nil, run.Evaluation{}, nil, err
	}
	name := r.PathValue("eval")
	i := slices.IndexFunc(evals, func(e run.Evaluation) bool { return evalName(e) == name })
	if i < 0 {
		return nil, run.Evaluation{}, nil, missing("run %s has no evaluation %s", h.ID(), brief(name))
	}
	ts, err := history.RolloutsOf(h).EvaluationTrajectories(r.Context(), evals[i])
	return h, evals[i], ts, err
}

func (s *Server) showEval(r *request) (Columns, error) {
	h, e, ts, err := s.evaluation(r)
	if err != nil {
		return Columns{}, err
	}
	greedy := e.NumProblems
	if e.Set != "" {
		cfg, err := h.Config(r.Context())
		if err != nil {
			return Columns{}, err
		}
		if !slices.ContainsFunc(cfg.Eval.Sets, func(set config.EvalSet) bool { return set.Name == e.Set && set.Greedy }) {
			greedy = 0
		}
	}
	rows := make([]record.Row, len(ts))
	for i := range ts {
		rows[i] = record.RowOf(&ts[i])
		rows[i].Rollout, rows[i].Fate = i, "sampled"
		if i < greedy {
			rows[i].Fate = "greedy"
		}
	}
	out := columnsOf(rows)
	out.Source = "evaluation"
	return out, out.encode()
}

// showEvalTrajectory takes the place in the record as k: greedy and sampled rollouts of
// a problem share their numbers.
func (s *Server) showEvalTrajectory(r *request) (TrajectoryView, error) {
	h, e, ts, err := s.evaluation(r)
	if err != nil {
		return TrajectoryView{}, err
	}
	k, err := r.number("k")
	if err != nil {
		return TrajectoryView{}, err
	}
	if k >= len(ts) || ts[k].ProblemID != r.PathValue("problem") {
		return TrajectoryView{}, missing("the evaluation has no trajectory %d of problem %s", k, brief(r.PathValue("problem")))
	}
	ctx := r.Context()
	p, err := s.findProblem(ctx, h, problemsOf{stage: e.Stage, heldOut: true, set: e.Set}, ts[k].ProblemID)
	if err != nil {
		return TrajectoryView{}, err
	}
	out, err := view(ctx, h, &ts[k], p)
	out.Rollout = k
	for i := range ts {
		if ts[i].ProblemID == p.ID {
			out.Rollouts = append(out.Rollouts, i)
		}
	}
	return out, err
}
