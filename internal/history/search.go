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
	"sync/atomic"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
)

// Search selects texts of trajectories.
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
	// At is the place of the match in bytes; Before and After are the text around it.
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
	search, err := o.newSearching(s)
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
		err := search.step(ctx, step, &p, func(h Hit) error {
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

// searching is a search under way.
type searching struct {
	Rollouts
	wanted Search
	// literal is a text that each match contains: the text itself, or the beginning of the
	// expression's matches.
	literal string
	// place is the place of the first match in a text, nil for none.
	place func([]byte) []int
	// first is how many bytes of a group are asked for first: a little more than the group
	// before needed.
	first atomic.Int64
	// tokens finds the text; the tokenizer is read when the first compact record is.
	once   sync.Once
	tokens findTokens
	failed error
}

// findTokens reports whether the text of ids has a match, and else its length.
type findTokens func(ids []int32, buf *buffers) (size int, found bool)

// buffers hold the bytes of the group being read.
type buffers struct {
	data, text []byte
	ids        []int32
	reader     record.TokenReader
}

// searchBuffers are kept from group to group.
var searchBuffers = sync.Pool{New: func() any { return new(buffers) }}

func (o Rollouts) newSearching(s Search) (*searching, error) {
	r := &searching{Rollouts: o, wanted: s, literal: s.Text}
	r.first.Store(leastFirst)
	switch {
	case s.Text == "":
		return nil, fault.Newf(fault.InvalidConfig, "the search has no text")
	case len(s.Text) > maxPattern:
		return nil, fault.Newf(fault.InvalidConfig, "the text to search for has %d bytes, at most %d are taken", len(s.Text), maxPattern)
	case !s.Regex:
		r.place = func(text []byte) []int {
			at := bytes.Index(text, []byte(s.Text))
			if at < 0 {
				return nil
			}
			return []int{at, at + len(s.Text)}
		}
		return r, nil
	}
	pattern, err := regexp.Compile(s.Text)
	if err != nil {
		return nil, fault.Newf(fault.InvalidConfig, "the regular expression cannot be used: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	r.literal, _ = pattern.LiteralPrefix()
	r.place = pattern.FindIndex
	return r, nil
}

// inTokens is the function that finds the text in tokens.
func (r *searching) inTokens(ctx context.Context) (findTokens, error) {
	r.once.Do(func() {
		tok, err := r.run.texts.tokenizer(ctx, r.run.store, r.run.layout)
		if err != nil {
			r.failed = err
			return
		}
		finder := tok.NewFinder([]byte(r.literal))
		r.tokens = func(ids []int32, buf *buffers) (size int, found bool) {
			if finder != nil {
				if size, found = finder.Find(ids); !found || !r.wanted.Regex {
					return size, found
				}
			}
			if buf.text = tok.AppendDecode(buf.text[:0], ids); r.place(buf.text) != nil {
				return 0, true
			}
			return len(buf.text), false
		}
	})
	return r.tokens, r.failed
}

// searchAhead is how many groups of a step are read and searched at a time: a far store
// lets each of them wait, and each takes some milliseconds of a processor.
const searchAhead = 16

// leastFirst is the least that is asked for of a group.
const leastFirst = 64 << 10

// step reports the hits of a step in the order of its trajectories.
func (r *searching) step(ctx context.Context, step int, p *Progress, hit func(Hit) error) error {
	problems, err := r.run.Problems(ctx, step)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(problems, searchAhead) {
		groups := make([]searched, len(part))
		err := artifact.Each(ctx, len(part), func(ctx context.Context, i int) (err error) {
			groups[i], err = r.group(ctx, step, part[i])
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

// searched is the result of a group; read is 0 if the group cannot be read.
type searched struct {
	hits  []Hit
	read  int
	bytes int64
}

// group looks through one group.
func (r *searching) group(ctx context.Context, step int, problem string) (searched, error) {
	buf := searchBuffers.Get().(*buffers)
	defer searchBuffers.Put(buf)
	data, err := run.ReadUpToTokens(ctx, r.run.store, r.run.layout.Step(step).Group(problem), int(r.first.Load()), buf.data[:0])
	buf.data = data
	if err != nil {
		return searched{}, passOver(err)
	}
	if !record.IsCompact(data) {
		return r.lines(data)
	}
	r.first.Store(int64(max(leastFirst, len(data)+len(data)/4)))
	packed, err := buf.reader.Read(data)
	if err != nil {
		return searched{}, nil //nolint:nilerr // it is damaged and passed over
	}
	find, err := r.inTokens(ctx)
	if err != nil {
		return searched{}, err
	}
	out := searched{read: 1}
	for i := range packed {
		buf.ids = packed[i].AppendResponse(buf.ids[:0])
		size, found := find(buf.ids, buf)
		out.bytes += int64(size)
		if !found {
			continue
		}
		t, err := packed[i].UnpackTokens()
		if err != nil {
			return searched{}, nil //nolint:nilerr // it is damaged and passed over
		}
		text, err := r.run.texts.of(ctx, r.run.store, r.run.layout, &t, nil)
		if err != nil {
			return searched{}, err
		}
		out.bytes += int64(len(text))
		out.hits = append(out.hits, hitOf(&t, text, r.place(text)))
	}
	return out, nil
}

// lines looks through a group that is stored as lines.
func (r *searching) lines(data []byte) (searched, error) {
	ts, err := record.Decode(data)
	if err != nil {
		return searched{}, nil //nolint:nilerr // it is damaged and passed over
	}
	out := searched{read: 1}
	for i := range ts {
		text := []byte(ts[i].Text)
		out.bytes += int64(len(text))
		if at := r.place(text); at != nil {
			out.hits = append(out.hits, hitOf(&ts[i], text, at))
		}
	}
	return out, nil
}

// passOver is nil for what is damaged or deleted.
func passOver(err error) error {
	if blob.IsDamage(err) {
		return nil
	}
	return err
}

func hitOf(t *rl.Trajectory, text []byte, at []int) Hit {
	from, to := at[0], min(at[1], at[0]+maxMatch)
	valid := func(text []byte) string { return strings.ToValidUTF8(string(text), "") }
	return Hit{
		Step: t.Step, Problem: t.ProblemID, Rollout: t.Rollout, Reward: t.Reward, StopReason: string(t.StopReason), At: from,
		Before: valid(text[max(0, from-aroundHit):from]), Match: valid(text[from:to]), After: valid(text[at[1]:min(len(text), at[1]+aroundHit)]),
	}
}
