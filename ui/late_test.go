package ui_test

import (
	"context"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"temper/internal/blob"
)

// late is the store of a run that ends while it is read: some keys are there when somebody has
// asked for the one that is written last.
type late struct {
	blob.Store
	last   string
	hidden []string // what their keys begin with
	ended  atomic.Bool
}

func (l *late) absent(key string) bool {
	if key == l.last {
		l.ended.Store(true)
	}
	return !l.ended.Load() && slices.ContainsFunc(l.hidden, func(start string) bool { return strings.HasPrefix(key, start) })
}

func (l *late) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if l.absent(key) {
		return nil, blob.ErrNotExist
	}
	return l.Store.Get(ctx, key)
}

func (l *late) Stat(ctx context.Context, key string) (blob.Info, error) {
	if l.absent(key) {
		return blob.Info{}, blob.ErrNotExist
	}
	return l.Store.Stat(ctx, key)
}

func (l *late) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	infos, folders, err := l.Store.ListFolder(ctx, folder)
	return slices.DeleteFunc(infos, func(i blob.Info) bool { return l.absent(i.Key) }), folders, err
}

// TestWhatIsKeptIsWhole: what is read while a run or a step ends may lack the end, and is not
// kept as if it had all.
func TestWhatIsKeptIsWhole(t *testing.T) {
	h := playedRun(t)
	whole := newSite(t, h.Store, nil)
	one := firstGroup(t, h, 6).ProblemID
	for name, c := range map[string]struct {
		last   string
		hidden []string
		path   string
	}{
		"series of a run": {h.Layout.Summary(), []string{h.Layout.Step(6).Log()}, "/runs/demo/series"},
		"rows of a step":  {h.Layout.Step(6).Log(), []string{h.Layout.Step(6).Index(), h.Layout.Step(6).Group(one)}, "/runs/demo/steps/6/trajectories"},
		"times of a step": {h.Layout.Step(6).Log(), []string{path.Dir(h.Layout.Step(6).Times("x"))}, "/runs/demo/steps/6/" + one + "/0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, &late{Store: h.Store, last: c.last, hidden: c.hidden}, nil)
			_, want := whole.ask(t, http.MethodGet, "/api/v1"+c.path, "")
			first, _ := s.ask(t, http.MethodGet, "/api/v1"+c.path, "")
			if _, got := s.ask(t, http.MethodGet, "/api/v1"+c.path, ""); got != want {
				t.Errorf("the second answer, after %s, is\n%.500s\nwant\n%.500s", first.Status, got, want)
			}
		})
	}
}
