package sampling

import (
	"context"
	"errors"
	"strings"
	"sync"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// SelectInput asks for the problems of a step.
type SelectInput struct {
	Run   run.Ref `json:"run"`
	Stage int     `json:"stage"`
	Step  int     `json:"step"`
	// StageStep counts the step within its stage, from 1.
	StageStep int `json:"stage_step"`
	// Round counts the calls for further problems of a step, from 1; 0 is the first
	// selection. Num is how many a further one asks for.
	Round int `json:"round,omitempty"`
	Num   int `json:"num,omitempty"`
}

// Selector deals out the problems of steps. It keeps the order of the problems of
// a few stages, so that a step does not read them all again. The zero value is
// ready, and may be used by several goroutines.
type Selector struct {
	mu        sync.Mutex
	ledgers   map[ledgerKey]*dataset.Ledger
	sequences map[ledgerKey]*problemSequence
	configs   run.Configs
}

// ledgerKey is all that the order of a stage's problems depends on.
type ledgerKey struct {
	run      run.Ref
	stage    int
	problems blob.Info
	filter   blob.Info
}

// maxLedgers bounds the stages whose problems are kept in memory, by their ids.
const maxLedgers = 8

// Select names the problems of a step. An epoch has each problem of the stage that the
// filter left exactly once, in an order drawn from the seed. With bands and with refill a
// step begins behind the step before, see selectFrom.
func (s *Selector) Select(ctx context.Context, store blob.Store, in SelectInput) ([]string, error) {
	cfg, err := s.configs.Read(ctx, store, in.Run)
	if err != nil {
		return nil, err
	}
	if cfg.Cursors(in.Stage - 1) {
		return s.selectFrom(ctx, store, in, cfg)
	}
	ledger, err := s.ledger(ctx, store, in)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, p := range ledger.Step(in.StageStep - 1) {
		ids = append(ids, p.ID)
	}
	return ids, nil
}

func (s *Selector) ledger(ctx context.Context, store blob.Store, in SelectInput) (*dataset.Ledger, error) {
	key, err := keyOf(ctx, store, in)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ledger, ok := s.ledgers[key]; ok {
		return ledger, nil
	}
	ledger, err := readLedger(ctx, store, in)
	if err != nil {
		return nil, err
	}
	if s.ledgers == nil || len(s.ledgers) >= maxLedgers {
		s.ledgers = map[ledgerKey]*dataset.Ledger{}
	}
	s.ledgers[key] = ledger
	return ledger, nil
}

// keyOf returns the key of a stage's problems as the store has them now.
func keyOf(ctx context.Context, store blob.Store, in SelectInput) (ledgerKey, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	key := ledgerKey{run: in.Run, stage: in.Stage}
	var err error
	if key.problems, err = store.Stat(ctx, layout.Stage(in.Stage).Train()); err != nil {
		return key, err
	}
	if key.filter, err = store.Stat(ctx, layout.Stage(in.Stage).Filter()); err != nil && !errors.Is(err, blob.ErrNotExist) {
		return key, err
	}
	return key, nil
}

func readLedger(ctx context.Context, store blob.Store, in SelectInput) (*dataset.Ledger, error) {
	cfg, problems, removed, err := readStage(ctx, store, in)
	if err != nil {
		return nil, err
	}
	return dataset.NewLedger(rl.Seed(cfg.Seed, "ledger", uint64(in.Stage)), problems, cfg.RL.ProblemsPerStep, removed)
}

// readStage reads the problems of a stage and the ids that the filter has removed.
func readStage(ctx context.Context, store blob.Store, in SelectInput) (cfg config.Run, problems []rl.Problem, removed map[string]bool, err error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if cfg, err = run.ReadConfig(ctx, store, in.Run); err != nil {
		return cfg, nil, nil, err
	}
	if problems, err = run.ReadProblems(ctx, store, layout.Stage(in.Stage).Train()); err != nil {
		return cfg, nil, nil, err
	}
	for i := range problems {
		problems[i] = rl.Problem{ID: strings.Clone(problems[i].ID)}
	}
	filter, _, err := artifact.Lookup[run.StoredFilter](ctx, store, layout.Stage(in.Stage).Filter())
	if err != nil {
		return cfg, nil, nil, err
	}
	removed = make(map[string]bool, len(filter.RemovedIDs))
	for _, id := range filter.RemovedIDs {
		removed[id] = true
	}
	return cfg, problems, removed, nil
}
