package history

import (
	"context"
	"iter"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// pace is how often a store is asked for what is new.
const pace = 300 * time.Millisecond

// Entry is one of the things that an active run writes; one field beside At and Key is set.
type Entry struct {
	At time.Time `json:"at"`
	// Key tells the entry from all others of the run.
	Key        string          `json:"-"`
	SFT        *run.SFTRecord  `json:"sft,omitempty"`
	Event      *run.Event      `json:"event,omitempty"`
	Step       *run.StepRecord `json:"step,omitempty"`
	Evaluation *run.Evaluation `json:"evaluation,omitempty"`
	// Summary is the last entry of a run.
	Summary *run.Summary `json:"summary,omitempty"`
}

// Feed reads what a run writes, each entry once. It is not safe for concurrent use.
type Feed struct {
	store  blob.Store
	layout artifact.Layout
	begun  bool            // there was a good poll
	seen   map[string]bool // keys that were read
	plan   run.Plan
	step   int
	ended  bool
}

// Follow reads a run from its beginning. The run need not be there yet.
func Follow(store blob.Store, runID string) *Feed {
	return &Feed{store: store, layout: artifact.Layout{RunID: runID}, seen: map[string]bool{}}
}

// Entries polls again and again, at once and then at a steady pace, until ctx ends,
// whose error comes last. It yields what each poll found, which may be nothing, so
// that the caller can look after other things; an error of the store is yielded,
// too, and the next poll begins where the last good one ended.
func (f *Feed) Entries(ctx context.Context) iter.Seq2[[]Entry, error] {
	return func(yield func([]Entry, error) bool) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			entries, err := f.Poll(ctx)
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
			if !yield(entries, err) {
				return
			}
			select {
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			case <-tick.C:
			}
		}
	}
}

// Poll returns what is new since the last Poll that succeeded, in order of time. It asks for the
// summary first: what was written before that is found then.
func (f *Feed) Poll(ctx context.Context) ([]Entry, error) {
	var p poll
	for _, look := range []func(context.Context, *poll) error{f.pollSummary, f.pollLog, f.pollSteps} {
		if err := look(ctx, &p); err != nil {
			return nil, err
		}
	}
	for _, key := range p.keys {
		f.seen[key] = true
	}
	slices.SortStableFunc(p.entries, func(a, b Entry) int { return a.At.Compare(b.At) })
	if p.summary != nil {
		p.entries = append(p.entries, Entry{At: p.summary.Ended, Key: f.layout.Summary(), Summary: p.summary})
	}
	f.begun, f.step, f.plan, f.ended = true, p.step, p.plan, f.ended || p.summary != nil
	return p.entries, nil
}

// poll is what one look has found.
type poll struct {
	entries []Entry
	keys    []string
	step    int
	plan    run.Plan
	summary *run.Summary
}

// pollLog looks into the folders whose files have no numbers in a row.
func (f *Feed) pollLog(ctx context.Context, p *poll) error {
	folders := []struct {
		path string
		read func(context.Context, []blob.Info) ([]Entry, error)
	}{
		{f.layout.SFT().Dir(), func(ctx context.Context, infos []blob.Info) ([]Entry, error) {
			return read(ctx, f.store, infos, func(at time.Time, r *run.SFTRecord) Entry { return Entry{At: at, SFT: r} })
		}},
		{f.layout.Events().Dir(), func(ctx context.Context, infos []blob.Info) ([]Entry, error) {
			return read(ctx, f.store, infos, func(_ time.Time, e *run.Event) Entry { return Entry{At: e.Time, Event: e} })
		}},
		{f.layout.Evals(), func(ctx context.Context, infos []blob.Info) ([]Entry, error) {
			return read(ctx, f.store, infos, func(at time.Time, e *run.Evaluation) Entry { return Entry{At: at, Evaluation: e} })
		}},
	}
	if f.step > 0 { // SFT is over
		folders = folders[1:]
	}
	fresh := make([][]blob.Info, len(folders))
	found := make([][]Entry, len(folders))
	err := artifact.Each(ctx, len(folders), func(ctx context.Context, i int) error {
		infos, err := results(ctx, f.store, folders[i].path)
		if err != nil {
			return err
		}
		fresh[i] = slices.DeleteFunc(infos, func(info blob.Info) bool { return f.seen[info.Key] })
		found[i], err = folders[i].read(ctx, fresh[i])
		return err
	})
	if err != nil {
		return err
	}
	for i := range folders {
		for _, info := range fresh[i] {
			p.keys = append(p.keys, info.Key)
		}
		p.entries = append(p.entries, found[i]...)
	}
	return nil
}

// read reads what was listed as entries.
func read[T any](ctx context.Context, store blob.Store, infos []blob.Info, entry func(time.Time, *T) Entry) ([]Entry, error) {
	all, err := gather[T](ctx, store, infos)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(all))
	for i := range all {
		out[i] = entry(infos[i].ModTime, &all[i])
		out[i].Key = infos[i].Key
	}
	return out, nil
}

// pollSteps reads the next steps: all existing ones at first, then one by one, since there
// is seldom more than one. An amendment of the plan leaves an event.
func (f *Feed) pollSteps(ctx context.Context, p *poll) error {
	p.step, p.plan = f.step, f.plan
	if len(p.keys) > 0 || p.plan.RunID == "" {
		plan, _, err := run.StoredPlan(ctx, f.store, f.layout.RunID)
		if err != nil {
			return err
		}
		p.plan = plan
	}
	if !f.begun {
		records, err := run.Records(ctx, f.store, p.plan)
		if err != nil {
			return err
		}
		for i := range records {
			p.addStep(f.layout, &records[i])
		}
	}
	for {
		record, err := f.nextStep(ctx, p)
		if err != nil || record == nil {
			return err
		}
		p.addStep(f.layout, record)
	}
}

// addStep adds a record unless it was seen.
func (p *poll) addStep(layout artifact.Layout, r *run.StepRecord) {
	if r.Step > p.step {
		p.step = r.Step
		p.entries = append(p.entries, Entry{At: r.Ended, Key: layout.Step(r.Step).Log(), Step: r})
	}
}

// nextStep is the record after the newest one that is known, nil where none is.
func (f *Feed) nextStep(ctx context.Context, p *poll) (*run.StepRecord, error) {
	for _, step := range p.plan.NextSteps(p.step) {
		record, ok, err := artifact.Lookup[run.StepRecord](ctx, f.store, f.layout.Step(step).Log())
		if err != nil {
			return nil, err
		}
		if ok {
			return &record, nil
		}
	}
	return nil, nil
}

// pollSummary looks for the run's last act.
func (f *Feed) pollSummary(ctx context.Context, p *poll) error {
	if f.ended {
		return nil
	}
	summary, ok, err := artifact.Lookup[run.Summary](ctx, f.store, f.layout.Summary())
	if err != nil || !ok {
		return err
	}
	p.summary = &summary
	return nil
}
