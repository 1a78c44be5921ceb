package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/chat/tokenizer"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
)

// TestSearchFindsNewestFirst, one hit a trajectory, and says when there are more.
func TestSearchFindsNewestFirst(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	o := history.RolloutsOf(mustOpen(t, h.Store, "demo"))
	look := func(s history.Search) (hits []history.Hit, steps []int, limited bool) {
		t.Helper()
		limited, err := o.Search(t.Context(), s, func(hit history.Hit) error {
			hits = append(hits, hit)
			return nil
		}, func(p history.Progress) error {
			steps = append(steps, p.Step)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return hits, steps, limited
	}
	hits, _, limited := look(history.Search{Text: "<answer>", Limit: 1000})
	if len(hits) == 0 || limited || hits[0].Step != 3 || hits[len(hits)-1].Step != 1 || hits[0].Match != "<answer>" {
		t.Errorf("%d hits, limited %v, the first %+v", len(hits), limited, hits[0])
	}
	all := len(hits)
	if hits, _, limited = look(history.Search{Text: "<answer>", Limit: all - 1}); len(hits) != all-1 || !limited {
		t.Errorf("%d hits of %d, limited %v", len(hits), all, limited)
	}
	if hits, _, _ = look(history.Search{Text: `<answ[a-z]+>\d*`, Regex: true, From: 2, To: 2, Limit: 1000}); len(hits) == 0 || hits[0].Step != 2 || hits[len(hits)-1].Step != 2 {
		t.Errorf("in step 2: %+v", hits)
	}
	began := time.Now()
	if hits, _, _ = look(history.Search{Text: strings.Repeat("(a*)*", 50) + "never", Regex: true, Limit: 1}); len(hits) > 0 || time.Since(began) > 10*time.Second {
		t.Errorf("an expression that explodes elsewhere: %d hits in %v", len(hits), time.Since(began))
	}
	stop := errors.New("enough")
	if _, err := o.Search(t.Context(), history.Search{Text: "<", Limit: 9}, func(history.Hit) error { return stop }, func(history.Progress) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("a client that goes: %v", err)
	}
	for text, want := range map[string]string{"": "no text", "(": "regular expression", strings.Repeat("a", 2000): "at most", "a{999}{999}": "regular expression"} {
		if _, err := o.Search(t.Context(), history.Search{Text: text, Regex: true, Limit: 1}, nil, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v, want an error with %q", text, err, want)
		}
	}
}

// TestSearchOfLargeGroups finds in compact records, of which more than is asked for first
// holds tokens, what decoding each text finds, and reads nothing of their log-probabilities.
func TestSearchOfLargeGroups(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	r := mustOpen(t, h.Store, "demo")
	problems, err := r.Problems(t.Context(), 1)
	if err != nil || len(problems) < 2 {
		t.Fatalf("%d problems (%v)", len(problems), err)
	}
	layout, draw := artifact.Layout{RunID: "demo"}, rand.New(rand.NewPCG(3, 4))
	data, err := blob.ReadKey(t.Context(), h.Store, layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	texts, stored := map[string]string{}, int64(0)
	for i, problem := range problems {
		ts, err := run.ReadTrajectories(t.Context(), h.Store, layout.Step(1).Group(problem))
		if err != nil {
			t.Fatal(err)
		}
		packed := make([]record.Packed, len(ts))
		for j := range ts {
			for range 40_000 * i { // the first group is a small one
				ts[j].Tokens = append(ts[j].Tokens, draw.Int32N(int32(tok.VocabSize()))) //nolint:gosec // small
				ts[j].LossMask, ts[j].RolloutLogprobs = append(ts[j].LossMask, true), append(ts[j].RolloutLogprobs, -draw.Float32())
			}
			texts[fmt.Sprintf("%s/%d", problem, j)] = tok.Decode(ts[j].Tokens[ts[j].PromptTokens:])
			if packed[j], err = record.Pack(&ts[j]); err != nil {
				t.Fatal(err)
			}
		}
		data, err := record.Compact(packed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Store.Put(t.Context(), layout.Step(1).Group(problem), bytes.NewReader(data), blob.Always); err != nil {
			t.Fatal(err)
		}
		stored += int64(len(data))
	}
	count := &counting{Store: h.Store}
	far := history.RolloutsOf(mustOpen(t, count, "demo"))
	for _, s := range []history.Search{{Text: "<answer>"}, {Text: "e"}, {Text: "not there at all"}, {Text: "(ab|c)+d", Regex: true}, {Text: `<answer>\d+`, Regex: true}, {Text: "e[a-c]$", Regex: true}, {Text: "zzz$", Regex: true}} {
		s.From, s.To, s.Limit = 1, 1, 1000
		pattern := regexp.MustCompile(s.Text)
		if !s.Regex {
			pattern = regexp.MustCompile(regexp.QuoteMeta(s.Text))
		}
		want, bytesOf := map[string]int{}, int64(0)
		for name, text := range texts {
			bytesOf += int64(len(text))
			if at := pattern.FindStringIndex(text); at != nil {
				want[name] = at[0]
			}
		}
		count.read.Store(0)
		got, last := map[string]int{}, history.Progress{}
		_, err := far.Search(t.Context(), s, func(hit history.Hit) error {
			got[fmt.Sprintf("%s/%d", hit.Problem, hit.Rollout)] = hit.At
			return nil
		}, func(p history.Progress) error { last = p; return nil })
		if err != nil || !maps.Equal(got, want) || last.Bytes != bytesOf || last.Groups != len(problems) {
			t.Errorf("%q: hits at %v of %d bytes in %d groups (%v), want %v of %d in %d", s.Text, got, last.Bytes, last.Groups, err, want, bytesOf, len(problems))
		}
		if read := count.read.Load(); read > stored/2 {
			t.Errorf("%q: %d bytes were read of %d, most of which are log-probabilities", s.Text, read, stored)
		}
	}
}

// counting counts the bytes that are read of trajectories.
type counting struct {
	blob.Store
	read atomic.Int64
}

func (c *counting) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	rc, err := c.Store.GetRange(ctx, key, offset, length)
	if err != nil || !strings.Contains(key, "/trajectories/") {
		return rc, err
	}
	return countedReader{rc, &c.read}, nil
}

type countedReader struct {
	io.ReadCloser
	read *atomic.Int64
}

func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read.Add(int64(n))
	return n, err
}

// TestSearchReadsGroupsSideBySide: a far store does not let them wait one after another.
func TestSearchReadsGroupsSideBySide(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	far := &distant{Store: h.Store, away: 5 * time.Millisecond}
	o := history.RolloutsOf(mustOpen(t, far, "demo"))
	var last history.Progress
	_, err := o.Search(t.Context(), history.Search{Text: "is in no text", Limit: 1}, nil, func(p history.Progress) error { last = p; return nil })
	if err != nil || last.Groups < 2 || far.mostTimes < 2 {
		t.Errorf("%d groups, %d requests at a time (%v)", last.Groups, far.mostTimes, err)
	}
}
