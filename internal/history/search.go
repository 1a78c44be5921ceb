package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
)

// Search is what to look for in the texts of trajectories.
type Search struct {
	// Text is found as it is, or as a regular expression of RE2, which needs no more time
	// than grows with the text.
	Text  string
	Regex bool
	// From and To are the first and the last step; 0 is no bound.
	From, To int
	// Limit is the most hits.
	Limit int
}

// Hit is a trajectory with a match in its text.
type Hit struct {
	Step       int     `json:"step"`
	Problem    string  `json:"problem"`
	Rollout    int     `json:"rollout"`
	Reward     float64 `json:"reward"`
	StopReason string  `json:"stop_reason"`
	// At is the place of the match in bytes; Before and After are what is around it.
	At     int    `json:"at"`
	Before string `json:"before"`
	Match  string `json:"match"`
	After  string `json:"after"`
}

// Progress is how far a search has come.
type Progress struct {
	Step      int   `json:"step"` // that is searched next
	StepsDone int   `json:"steps_done"`
	Steps     int   `json:"steps"`
	Groups    int   `json:"groups"`
	Bytes     int64 `json:"bytes"` // of texts
}

// Bounds of a search.
const (
	maxPattern = 1000
	aroundHit  = 80
	maxMatch   = 200
)

// Search looks through the stored trajectories, the newest step first, and calls hit with
// the first match of each one and tell after each step. It ends at the limit, which it
// reports, or by the first error of hit or tell. It passes over groups that are damaged or
// deleted. Errors: InvalidConfig for a pattern that is none.
func (o Rollouts) Search(ctx context.Context, s Search, hit func(Hit) error, tell func(Progress) error) (limited bool, err error) {
	find, err := s.finder()
	if err != nil {
		return false, err
	}
	entry, err := o.run.Entry(ctx)
	if err != nil {
		return false, err
	}
	last, first := entry.Step+1, max(1, s.From) // of the step under way there may be groups
	if s.To > 0 {
		last = min(last, s.To)
	}
	p := Progress{Steps: max(0, last-first+1)}
	left := s.Limit
	for step := last; step >= first; step-- {
		err := o.searchStep(ctx, step, &p, find, func(h Hit) error {
			if left--; left < 0 {
				return errLimit
			}
			return hit(h)
		})
		if errors.Is(err, errLimit) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		p.StepsDone++
		p.Step = step - 1
		if err := tell(p); err != nil {
			return false, err
		}
	}
	return false, nil
}

var errLimit = errors.New("limit of hits")

// finder returns the place of the first match, nil for none.
func (s Search) finder() (func([]byte) []int, error) {
	switch {
	case s.Text == "":
		return nil, fault.Newf(fault.InvalidConfig, "the search has no text")
	case len(s.Text) > maxPattern:
		return nil, fault.Newf(fault.InvalidConfig, "the text to search for has %d bytes, at most %d are taken", len(s.Text), maxPattern)
	case !s.Regex:
		wanted := []byte(s.Text)
		return func(text []byte) []int {
			at := bytes.Index(text, wanted)
			if at < 0 {
				return nil
			}
			return []int{at, at + len(wanted)}
		}, nil
	}
	pattern, err := regexp.Compile(s.Text)
	if err != nil {
		return nil, fault.Newf(fault.InvalidConfig, "the regular expression cannot be used: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return pattern.FindIndex, nil
}

// searchAhead is how many groups of a step are read and searched at a time: a far store
// lets each of them wait, and each takes some milliseconds of a processor.
const searchAhead = 16

// searchStep reports the hits of a step in the order of its trajectories.
func (o Rollouts) searchStep(ctx context.Context, step int, p *Progress, find func([]byte) []int, hit func(Hit) error) error {
	problems, err := o.run.Problems(ctx, step)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(problems, searchAhead) {
		groups := make([]searched, len(part))
		err := artifact.Each(ctx, len(part), func(ctx context.Context, i int) (err error) {
			groups[i], err = o.searchGroup(ctx, step, part[i], find)
			return err
		})
		if err != nil {
			return fmt.Errorf("search step %d: %w", step, err)
		}
		for _, g := range groups {
			p.Groups, p.Bytes = p.Groups+g.read, p.Bytes+g.bytes
			for _, h := range g.hits {
				if err := hit(h); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// searched is what was found in a group; read is 0 of one that cannot be read.
type searched struct {
	hits  []Hit
	read  int
	bytes int64
}

// searchTexts are what texts are decoded into.
var searchTexts = sync.Pool{New: func() any { return new([]byte) }}

func (o Rollouts) searchGroup(ctx context.Context, step int, problem string, find func([]byte) []int) (out searched, err error) {
	ts, err := run.ReadWithoutLogprobs(ctx, o.run.store, o.run.layout.Group(step, problem))
	if blob.IsDamage(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.read = 1
	buf := searchTexts.Get().(*[]byte)
	defer searchTexts.Put(buf)
	for i := range ts {
		text, err := o.run.texts.of(ctx, o.run.store, o.run.layout, &ts[i], (*buf)[:0])
		if err != nil {
			return out, err
		}
		*buf = text
		out.bytes += int64(len(text))
		if at := find(text); at != nil {
			out.hits = append(out.hits, hitOf(&ts[i], text, at))
		}
	}
	return out, nil
}

func hitOf(t *rl.Trajectory, text []byte, at []int) Hit {
	from, to := at[0], min(at[1], at[0]+maxMatch)
	valid := func(text []byte) string { return strings.ToValidUTF8(string(text), "") }
	return Hit{
		Step: t.Step, Problem: t.ProblemID, Rollout: t.Rollout, Reward: t.Reward, StopReason: string(t.StopReason), At: from,
		Before: valid(text[max(0, from-aroundHit):from]), Match: valid(text[from:to]), After: valid(text[at[1]:min(len(text), at[1]+aroundHit)]),
	}
}
