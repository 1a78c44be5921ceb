package history

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
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
func (s Search) finder() (func(string) []int, error) {
	switch {
	case s.Text == "":
		return nil, fault.Newf(fault.InvalidConfig, "the search has no text")
	case len(s.Text) > maxPattern:
		return nil, fault.Newf(fault.InvalidConfig, "the text to search for has %d bytes, at most %d are taken", len(s.Text), maxPattern)
	case !s.Regex:
		return func(text string) []int {
			at := strings.Index(text, s.Text)
			if at < 0 {
				return nil
			}
			return []int{at, at + len(s.Text)}
		}, nil
	}
	pattern, err := regexp.Compile(s.Text)
	if err != nil {
		return nil, fault.Newf(fault.InvalidConfig, "the regular expression cannot be used: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return pattern.FindStringIndex, nil
}

// searchAhead is how many groups of a step are read and searched at a time: a far store
// lets each of them wait, and each takes some milliseconds of a processor.
const searchAhead = 16

// searchStep reports the hits of a step in the order of its trajectories.
func (o Rollouts) searchStep(ctx context.Context, step int, p *Progress, find func(string) []int, hit func(Hit) error) error {
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

func (o Rollouts) searchGroup(ctx context.Context, step int, problem string, find func(string) []int) (out searched, err error) {
	ts, err := o.run.Group(ctx, step, problem)
	if blob.IsDamage(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.read = 1
	for i := range ts {
		out.bytes += int64(len(ts[i].Text))
		if at := find(ts[i].Text); at != nil {
			out.hits = append(out.hits, hitOf(&ts[i], at))
		}
	}
	return out, nil
}

func hitOf(t *rl.Trajectory, at []int) Hit {
	from, to := at[0], min(at[1], at[0]+maxMatch)
	valid := func(text string) string { return strings.ToValidUTF8(text, "") }
	return Hit{
		Step: t.Step, Problem: t.ProblemID, Rollout: t.Rollout, Reward: t.Reward, StopReason: string(t.StopReason), At: from,
		Before: valid(t.Text[max(0, from-aroundHit):from]), Match: valid(t.Text[from:to]), After: valid(t.Text[at[1]:min(len(t.Text), at[1]+aroundHit)]),
	}
}
