package history_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"temper/internal/history"
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
