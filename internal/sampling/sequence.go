package sampling

import (
	"context"
	"fmt"
	"sync"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Selection is the choice of problems of a step, with bands and with refill in several
// rounds. The next choice begins after it.
type Selection struct {
	ProblemIDs []string `json:"problem_ids"`
	// From and Next are places in the endless sequence of passes over the stage's problems.
	From int `json:"from"`
	Next int `json:"next"`
	// Rested counts the problems that were passed over.
	Rested int `json:"rested,omitempty"`
}

// problemSequence is the endless sequence of passes over the problems of a stage, each pass
// in another order.
type problemSequence struct {
	mu    sync.Mutex
	seed  uint64
	ids   []string
	epoch int   // of order
	order []int // nil before the first deal
	// rates are the results of the steps up to ratedTo for each problem.
	rates   map[string]ratedProblem
	ratedTo int
}

// ratedProblem is the pass rate of a problem in its newest group.
type ratedProblem struct {
	rate float64
	pass int // over the data, in which the group was sampled
}

// at returns the problem at a place, and the pass that the place belongs to.
func (d *problemSequence) at(place int) (id string, pass int) {
	pass = place / len(d.ids)
	if d.order == nil || d.epoch != pass {
		d.epoch, d.order = pass, rl.Rand(rl.Seed(d.seed, "deck", uint64(pass))).Perm(len(d.ids))
	}
	return d.ids[d.order[place%len(d.ids)]], pass
}

// take returns n problems from a place on, or fewer when no more are left. It skips
// problems that are taken, and problems that rest.
func (d *problemSequence) take(from, n int, taken map[string]bool, bands config.Bands) Selection {
	out := Selection{From: from, Next: from}
	end := from + len(d.ids)*(bands.Passes()+2)
	for len(out.ProblemIDs) < n && out.Next < end {
		id, pass := d.at(out.Next)
		out.Next++
		if taken[id] {
			continue
		}
		if r, ok := d.rates[id]; bands.On() && ok && (r.rate < bands.MinPassRate || r.rate > bands.MaxPassRate) && pass <= r.pass+bands.Passes() {
			out.Rested++
			continue
		}
		taken[id] = true
		out.ProblemIDs = append(out.ProblemIDs, id)
	}
	return out
}

// selectFrom takes the problems that follow the previous step's, and stores the selection.
func (s *Selector) selectFrom(ctx context.Context, store blob.Store, in SelectInput, cfg config.Run) ([]string, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	key := layout.Step(in.Step).Selection(in.Round)
	if done, ok, err := artifact.Lookup[Selection](ctx, store, key); ok || err != nil {
		return done.ProblemIDs, err
	}
	d, err := s.sequence(ctx, store, in)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := cfg.RL.ProblemsPerStep
	if in.Round > 0 {
		n = min(n, in.Num)
	}
	if len(d.ids) < n {
		return nil, fault.Newf(fault.Dataset, "stage %d: %d problems are left, rl.problems_per_step is %d", in.Stage, len(d.ids), n)
	}
	taken := map[string]bool{}
	from, err := place(ctx, store, layout, in, cfg.RL.ProblemsPerStep, taken)
	if err != nil {
		return nil, err
	}
	bands := cfg.Stages[in.Stage-1].Bands
	if bands.On() {
		if err := d.readRates(ctx, store, layout, in, cfg.RL.Window); err != nil {
			return nil, err
		}
	}
	out := d.take(from, n, taken, bands)
	if len(out.ProblemIDs) == 0 && in.Round == 0 {
		return nil, fmt.Errorf("step %d: no problem is left from place %d on", in.Step, from)
	}
	out, err = artifact.PutOnce(ctx, store, key, out)
	return out.ProblemIDs, err
}

// place returns where a round begins: after the previous round, or after the previous step.
// The first step of a stage in this run begins where steps without bands would. place adds
// the problems of earlier rounds to taken.
func place(ctx context.Context, store blob.Store, layout artifact.Layout, in SelectInput, perStep int, taken map[string]bool) (int, error) {
	next, found := (in.StageStep-1)*perStep, false
	follow := func(step, rounds int) error {
		for round := range rounds {
			s, ok, err := artifact.Lookup[Selection](ctx, store, layout.Step(step).Selection(round))
			if err != nil || !ok {
				return err
			}
			next, found = s.Next, true
			if step == in.Step {
				for _, id := range s.ProblemIDs {
					taken[id] = true
				}
			}
		}
		return nil
	}
	if err := follow(in.Step, in.Round); err != nil || found || in.StageStep == 1 {
		return next, err
	}
	return next, follow(in.Step-1, maxRounds)
}

// maxRounds bounds the rounds of a step: the first one, and as many as rl.refill allows.
const maxRounds = 1 + 64

// sequence returns the sequence of a stage. The last few are cached.
func (s *Selector) sequence(ctx context.Context, store blob.Store, in SelectInput) (*problemSequence, error) {
	key, err := keyOf(ctx, store, in)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.sequences[key]; ok {
		return d, nil
	}
	cfg, problems, removed, err := readStage(ctx, store, in)
	if err != nil {
		return nil, err
	}
	d := &problemSequence{seed: rl.Seed(cfg.Seed, "deck", uint64(in.Stage)), rates: map[string]ratedProblem{}}
	for _, p := range problems {
		if !removed[p.ID] {
			d.ids = append(d.ids, p.ID)
		}
	}
	if s.sequences == nil || len(s.sequences) >= maxLedgers {
		s.sequences = map[ledgerKey]*problemSequence{}
	}
	s.sequences[key] = d
	return d, nil
}

// readRates reads the pass rates that the steps of the stage found. It reads the steps that
// are learned when the step is selected: all before it, less the window.
func (d *problemSequence) readRates(ctx context.Context, store blob.Store, layout artifact.Layout, in SelectInput, window int) error {
	first, last := in.Step-in.StageStep+1, in.Step-1-window
	if d.ratedTo > last { // asked for an earlier step again
		d.rates, d.ratedTo = map[string]ratedProblem{}, 0
	}
	for step := max(first, d.ratedTo+1); step <= last; step++ {
		batch, ok, err := artifact.Lookup[run.StoredBatch](ctx, store, layout.Step(step).Batch())
		if err != nil {
			return err
		}
		if !ok {
			continue // made by the run that this one is a fork of
		}
		selected, _, err := artifact.Lookup[Selection](ctx, store, layout.Step(step).Selection(0))
		if err != nil {
			return err
		}
		for i := range batch.Groups {
			if g := &batch.Groups[i]; g.All.Num > 0 {
				d.rates[g.ProblemID] = ratedProblem{rate: g.All.Mean(g.All.Reward), pass: selected.From / len(d.ids)}
			}
		}
		d.ratedTo = step
	}
	return nil
}
