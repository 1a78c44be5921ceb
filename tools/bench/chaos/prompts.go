package chaos

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Prompts is what the store says about the problems that a run trained on.
type Prompts struct {
	// Lost counts problems that an epoch left out, and groups or trajectories
	// that a step lacks; Doubled those that an epoch had twice.
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	// Notes says which.
	Notes []string `json:"notes,omitempty"`
}

// CheckPrompts counts, from the trajectories that are stored, how often each
// problem of a stage was sampled. After every step, each problem that the stage's
// filter kept must have been sampled once for each whole epoch, or once more. It
// does not ask the ledger, whose promise it checks.
func CheckPrompts(ctx context.Context, store blob.Store, run artifact.Layout) (Prompts, error) {
	data, err := blob.ReadKey(ctx, store, run.Config().Opened())
	if err != nil {
		return Prompts{}, err
	}
	cfg, err := config.Load(run.Config().Opened(), data, nil)
	if err != nil {
		return Prompts{}, err
	}
	var out Prompts
	first := 1
	for i, stage := range cfg.Stages {
		problems, err := stageProblems(ctx, store, run, i+1)
		if err != nil {
			return out, err
		}
		c := census{store: store, run: run, cfg: cfg, had: map[string]int{}, problems: problems, out: &out}
		for step := first; step < first+stage.Until.Steps; step++ {
			if err := c.step(ctx, step); err != nil {
				return out, err
			}
		}
		first += stage.Until.Steps
	}
	return out, nil
}

// stageProblems reads the ids that a stage trains on.
func stageProblems(ctx context.Context, store blob.Store, run artifact.Layout, stage int) ([]string, error) {
	data, err := blob.ReadKey(ctx, store, run.Stage(stage).Train())
	if err != nil {
		return nil, err
	}
	all, err := dataset.ReadProblems(bytes.NewReader(data), run.Stage(stage).Train())
	if err != nil {
		return nil, err
	}
	filter, _, err := artifact.Lookup[struct {
		Removed []string `json:"removed_ids"`
	}](ctx, store, run.Stage(stage).Filter())
	if err != nil {
		return nil, err
	}
	removed := map[string]bool{}
	for _, id := range filter.Removed {
		removed[id] = true
	}
	var ids []string
	for _, p := range all {
		if !removed[p.ID] {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

// census counts the problems of a stage, step by step.
type census struct {
	store    blob.Store
	run      artifact.Layout
	cfg      config.Run
	problems []string
	had      map[string]int
	total    int
	out      *Prompts
}

func (c *census) step(ctx context.Context, step int) error {
	infos, err := c.store.List(ctx, path.Dir(c.run.Step(step).Group("x"))+"/")
	if err != nil {
		return err
	}
	if missing := c.cfg.RL.ProblemsPerStep - len(infos); missing > 0 {
		c.lost(missing, fmt.Sprintf("step %d: %d groups are missing", step, missing))
	}
	for _, info := range infos {
		if err := c.group(ctx, step, info.Key); err != nil {
			return err
		}
	}
	c.total += c.cfg.RL.ProblemsPerStep
	n := len(c.problems)
	for _, id := range c.problems {
		switch had := c.had[id]; {
		case had < c.total/n:
			c.lost(1, fmt.Sprintf("step %d: problem %s was sampled %d times in %d epochs", step, id, had, c.total/n))
			c.had[id] = c.total / n // reported once
		case had > (c.total+n-1)/n:
			c.out.Doubled++
			c.out.Notes = append(c.out.Notes, fmt.Sprintf("step %d: problem %s was sampled %d times in %d epochs", step, id, had, (c.total+n-1)/n))
			c.had[id] = (c.total + n - 1) / n
		}
	}
	return nil
}

// group counts one problem and looks at its trajectories.
func (c *census) group(ctx context.Context, step int, key string) error {
	id := strings.TrimSuffix(path.Base(key), ".jsonl")
	c.had[id]++
	trajectories, err := run.ReadTrajectories(ctx, c.store, key)
	if err != nil {
		return err
	}
	whole := 0
	for i := range trajectories {
		if t := &trajectories[i]; t.StopReason != rl.StopInfraError && t.ProblemID == id {
			whole++
		}
	}
	if missing := c.cfg.RL.RolloutsPerProblem - whole; missing > 0 {
		c.lost(1, fmt.Sprintf("step %d: group %s lacks %d trajectories", step, id, missing))
	}
	return nil
}

func (c *census) lost(n int, note string) {
	c.out.Lost += n
	c.out.Notes = append(c.out.Notes, note)
}
