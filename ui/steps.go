package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
)

// notRecorded stands for a value that the run does not record.
const notRecorded = "not recorded"

// GroupRow is a group in the strip of a step.
type GroupRow struct {
	Problem string `json:"problem"`
	// Fate is kept, all_correct, all_wrong or empty; "" where it is not recorded.
	Fate    string  `json:"fate"`
	Num     int     `json:"num"`
	Correct int     `json:"correct"`
	Kept    int     `json:"kept"`
	Lost    int     `json:"lost,omitempty"`
	Calls   int     `json:"calls"`
	Failed  int     `json:"failed"`
	Tokens  float64 `json:"tokens"` // mean of a response
}

// StepView is a step.
type StepView struct {
	Record *run.StepRecord `json:"record,omitempty"`
	Step   int             `json:"step"`
	Groups []GroupRow      `json:"groups"`
	// Texts tells why the trajectories are missing; empty where they are stored.
	Texts string `json:"texts,omitempty"`
	// Last is the newest step that the run has a record of.
	Last int `json:"last"`
}

// stepPages serves the steps of a run, with their groups and trajectories.
type stepPages struct{ reader *runReader }

func (sp *stepPages) showStep(r *request) (StepView, error) {
	ctx := r.Context()
	h, step, err := sp.reader.openStep(r)
	if err != nil {
		return StepView{}, err
	}
	out := StepView{Step: step, Groups: []GroupRow{}}
	var rec run.StepRecord
	var batch run.StoredBatch
	var ended, ok bool
	var there []string
	g, inGroup := errgroup.WithContext(ctx) // one round trip to a far store
	g.Go(func() (err error) { rec, ended, err = history.RolloutsOf(h).Record(inGroup, step); return err })
	g.Go(func() (err error) { batch, ok, err = history.RolloutsOf(h).Batch(inGroup, step); return err })
	g.Go(func() (err error) { there, err = h.Problems(inGroup, step); return err })
	g.Go(func() error {
		entry, err := h.Entry(inGroup)
		out.Last = entry.Step
		return err
	})
	if err := g.Wait(); err != nil {
		return out, err
	}
	if ended {
		rec.Metrics = rec.Metrics.Known()
		out.Record = &rec
	}
	if !ok && !ended {
		return out, missing("run %s has no step %d (its newest is %d)", h.ID(), step, out.Last)
	}
	for _, g := range batch.Groups {
		out.Groups = append(out.Groups, GroupRow{
			Problem: g.ProblemID, Fate: string(g.Fate), Num: g.All.Num + g.InfraErrors, Correct: g.Correct.Num, Kept: g.NumSamples, Lost: g.InfraErrors,
			Calls: g.All.Calls, Failed: g.All.Failed, Tokens: g.All.Mean(float64(g.All.Tokens)),
		})
	}
	if len(there) == 0 {
		out.Texts = fmt.Sprintf("the texts of step %d are not in the store: checkpoint.keep_trajectories has deleted them", step)
	}
	return out, nil
}

// Columns holds rows by column: 16,384 rows as objects would repeat each name 16,384 times.
type Columns struct {
	Rows int            `json:"rows"`
	Data map[string]any `json:"data"`
	// Source tells where the rows come from: the index of the step, or its trajectories.
	Source string `json:"source"`
	// Remark names what is not recorded.
	Remark string `json:"remark,omitempty"`

	text []byte // the encoded answer
}

func (sp *stepPages) showTrajectories(r *request) (Columns, error) {
	ctx := r.Context()
	h, step, err := sp.reader.openStep(r)
	if err != nil {
		return Columns{}, err
	}
	key := fmt.Sprintf("rows/%s/%d", h.ID(), step)
	if known, ok := sp.reader.cache.get(key); ok {
		r.immutable = true
		return known.(Columns), nil //nolint:forcetypeassert // the key is of this type alone
	}
	_, ended, _ := history.RolloutsOf(h).Record(ctx, step) // first: the step may end while its rows are read
	stored, ok, err := history.RolloutsOf(h).Columns(ctx, step)
	if err != nil {
		return Columns{}, err
	}
	var out Columns
	if ok {
		out = columnsOfIndex(stored)
	} else {
		rows, remark, err := recordedRows(ctx, h, step)
		if err != nil {
			return Columns{}, err
		}
		out = columnsOf(rows)
		out.Source, out.Remark = fromRecords, remark
	}
	if err := out.encode(); err != nil {
		return out, err
	}
	if ended {
		sp.reader.cache.put(key, out, len(out.text)+1000)
		r.immutable = true
	}
	return out, nil
}

// encode encodes the answer once and drops the columns.
func (c *Columns) encode() error {
	text, err := json.Marshal(c)
	c.text, c.Data = text, nil
	return err
}

func (c Columns) encoded() []byte { return c.text }

// Sources of rows.
const (
	fromIndex   = "index"
	fromRecords = "trajectories"
)

// recordedRows derives the rows of a step that has no index yet from its trajectories.
func recordedRows(ctx context.Context, h *history.Run, step int) (rows []record.Row, remark string, err error) {
	problems, err := h.Problems(ctx, step)
	if err != nil {
		return nil, "", err
	}
	if len(problems) == 0 {
		return nil, "", missing("the rows of step %d are not in the store: it has no index, and its trajectories are gone", step)
	}
	cfg, err := h.Config(ctx)
	if err != nil {
		return nil, "", err
	}
	perGroup := make([][]record.Row, len(problems))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(groupsAtOnce)
	for i, id := range problems {
		g.Go(func() (err error) {
			perGroup[i], err = oldRows(ctx, h, cfg.At(step), step, id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, "", err
	}
	return slices.Concat(perGroup...), "this step has no index: fates are those of the trainer's samples", nil
}

// groupsAtOnce bounds the groups in memory.
const groupsAtOnce = 4

// oldRows derives the rows of a group without an index from its trajectories and its stored
// samples.
func oldRows(ctx context.Context, h *history.Run, cfg config.Run, step int, id string) ([]record.Row, error) {
	ts, err := h.Group(ctx, step, id)
	if err != nil {
		return nil, err
	}
	kept, known, err := history.RolloutsOf(h).Advantages(ctx, step, id)
	if err != nil {
		return nil, err
	}
	uniform := isUniform(ts)
	var out []record.Row
	for i := range ts {
		t := &ts[i]
		row := record.RowOf(t)
		advantage, wasKept := kept[t.Rollout]
		switch {
		case t.Excluded():
			row.Fate = record.FateExcluded
		case wasKept:
			row.Fate, row.Advantage = record.FateKept, record.Finite(advantage)
		case uniform:
			row.Fate = record.FateUniform
		case known:
			row.Fate = record.FateDropped
		}
		if t.Reward > 0 && !t.Excluded() {
			pErr, pFormat := cfg.RL.RoC.Penalties(t)
			row.PErr, row.PFormat = &pErr, &pFormat
			row.Weight = record.Finite(cfg.RL.RoC.Weight(pErr, pFormat))
		}
		out = append(out, row)
	}
	return out, nil
}

func isUniform(ts []rl.Trajectory) bool {
	var rewards []float64
	for i := range ts {
		if !ts[i].Excluded() {
			rewards = append(rewards, ts[i].Reward)
		}
	}
	return len(rewards) > 0 && !slices.ContainsFunc(rewards, func(r float64) bool { return r != rewards[0] })
}

// RolloutRow is a rollout of a group with the reason for its fate.
type RolloutRow struct {
	record.Row
	// Why is one sentence.
	Why string `json:"why"`
	// End is the last part of the response.
	End string `json:"end"`
}

// GroupView is a group.
type GroupView struct {
	Problem rl.Problem   `json:"problem"`
	Step    int          `json:"step"`
	Fate    string       `json:"fate"`
	Why     string       `json:"why"`
	Rows    []RolloutRow `json:"rows"`
	// Source reports whether fates are recorded (index) or derived (trajectories).
	Source string `json:"source"`
	// Texts tells why the trajectories are missing; empty where they are stored.
	Texts string `json:"texts,omitempty"`
	// Problems holds the ids of the step's groups, for links to the next one.
	Problems []string `json:"problems"`
}

// endOfText is the number of bytes of a response that a group shows.
const endOfText = 400

func (sp *stepPages) showGroup(r *request) (GroupView, error) {
	ctx := r.Context()
	h, step, err := sp.reader.openStep(r)
	if err != nil {
		return GroupView{}, err
	}
	id := r.PathValue("problem")
	if !isProblemID(id) {
		return GroupView{}, problem{http.StatusBadRequest, fmt.Sprintf("problem %s: want visible ASCII without '/'", brief(id))}
	}
	out := GroupView{Step: step, Problems: []string{}}
	var rows []record.Row
	var group run.GroupRecord
	var cfg config.Run
	var ts []rl.Trajectory
	g, inGroup := errgroup.WithContext(ctx) // one round trip to a far store
	g.Go(func() (err error) { out.Problem, err = sp.reader.problem(inGroup, h, step, id); return err })
	g.Go(func() (err error) {
		rows, out.Source, group, err = sp.reader.groupRows(inGroup, h, step, id)
		return err
	})
	g.Go(func() (err error) { cfg, err = h.Config(inGroup); return err })
	g.Go(func() (err error) {
		ts, err = h.Group(inGroup, step, id)
		if errors.Is(err, blob.ErrNotExist) {
			out.Texts = fmt.Sprintf("the texts of step %d are not in the store: checkpoint.keep_trajectories has deleted them", step)
			return nil
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return out, err
	}
	out.Fate = string(group.Fate)
	ends := map[int]string{}
	for i := range ts {
		ends[ts[i].Rollout] = tailOf(ts[i].Text, endOfText)
	}
	e := newExplainer(rows, cfg.At(step).RL)
	out.Why = e.group()
	for _, row := range rows {
		out.Rows = append(out.Rows, RolloutRow{Row: row, Why: e.sentence(row), End: ends[row.Rollout]})
	}
	out.Rows = orEmpty(out.Rows)
	if batch, ok, err := history.RolloutsOf(h).Batch(ctx, step); err == nil && ok {
		for _, g := range batch.Groups {
			out.Problems = append(out.Problems, g.ProblemID)
		}
	}
	return out, nil
}

// tailOf returns the last n bytes of a text, from the start of a rune.
func tailOf(text string, n int) string {
	if len(text) <= n {
		return text
	}
	cut := len(text) - n
	for cut < len(text) && text[cut]&0xc0 == 0x80 {
		cut++
	}
	return text[cut:]
}
