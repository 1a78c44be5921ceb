package lease_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/inference/lease"
)

func entry(name, holder string) lease.Entry {
	return lease.Entry{Name: name, Run: "run-1", Address: "http://" + holder, Holder: holder}
}

func hold(t *testing.T, store blob.Store, e lease.Entry) *lease.Lease {
	t.Helper()
	l, err := lease.Hold(t.Context(), lease.Config{Store: store, Entry: e})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// keep renews a lease until stop is called.
func keep(t *testing.T, l *lease.Lease) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Keep(ctx) }()
	return func() error { cancel(); return <-done }
}

// alive are the names that a reader finds alive.
func alive(t *testing.T, r *lease.Reader) string {
	t.Helper()
	found, err := r.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range found {
		if f.Alive {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, " ")
}

// TestLeaseLivesWhileItsCounterChanges: a reader finds an engine for as long as it
// renews its lease, and some beats longer; also one whose clock is years away.
func TestLeaseLivesWhileItsCounterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		stopOne := keep(t, hold(t, store, entry("one", "a")))
		stopTwo := keep(t, hold(t, store, entry("two", "b")))
		reader := lease.NewReader(store, "run-1", time.Now, 0)
		late := lease.NewReader(store, "run-1", func() time.Time { return time.Now().AddDate(9, 0, 0) }, 0)
		for range 20 {
			for _, r := range []*lease.Reader{reader, late} {
				if got := alive(t, r); got != "one two" {
					t.Fatalf("%q are alive, want both", got)
				}
			}
			time.Sleep(lease.Every)
		}
		if err := stopTwo(); err != nil { // as a kill would
			t.Error(err)
		}
		for range 5 {
			alive(t, reader)
			time.Sleep(lease.Every)
		}
		if got := alive(t, reader); got != "one" {
			t.Errorf("%q are alive after one has died, want the other", got)
		}
		if got, err := lease.NewReader(store, "run-2", time.Now, 0).Look(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("another run finds %v (%v)", got, err)
		}
		if err := stopOne(); err != nil {
			t.Error(err)
		}
	})
}

// TestReaderThatWasStopped: a pause of the reader is no silence of the engine.
func TestReaderThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		stop := keep(t, hold(t, store, entry("one", "a")))
		reader := lease.NewReader(store, "run-1", time.Now, 0)
		alive(t, reader)
		time.Sleep(time.Hour)
		if got := alive(t, reader); got != "one" {
			t.Errorf("%q are alive after the reader was stopped, want one", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestTwoEnginesUnderOneName: the second is refused with the name of the first, while
// that one lives; after its death, and at once after it has left, the name is free.
func TestTwoEnginesUnderOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		first := hold(t, store, entry("one", "a"))
		stop := keep(t, first)
		_, err := lease.Hold(t.Context(), lease.Config{Store: store, Entry: entry("one", "b")})
		if !errors.Is(err, lease.ErrTaken) || !strings.Contains(err.Error(), `"one" of run run-1 is a at http://a`) {
			t.Errorf("error %v, want ErrTaken with the first one's name", err)
		}
		if err := stop(); err != nil { // as a kill would
			t.Error(err)
		}
		began := time.Now()
		second := hold(t, store, entry("one", "b"))
		if waited := time.Since(began); waited < 3*lease.Every || waited > 6*lease.Every {
			t.Errorf("the name of a dead engine was free after %s, want some beats", waited)
		}
		if err := first.Keep(t.Context()); !errors.Is(err, lease.ErrLost) {
			t.Errorf("the first one goes on: %v, want ErrLost", err)
		}
		if err := second.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := alive(t, lease.NewReader(store, "run-1", time.Now, 0)); got != "" {
			t.Errorf("%q is alive after it has left", got)
		}
		began = time.Now()
		hold(t, store, entry("one", "c"))
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the name of an engine that left was free after %s, want at once", waited)
		}
	})
}

// TestSpoiledEntries: what is no lease stops nobody, and a failing store no judgement.
func TestSpoiledEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		for key, data := range map[string]string{
			"one.json": "no json", "two.json": `{"format":9,"name":"two","run":"run-1"}`, "three.txt": "x",
			"four.json": `{"format":1,"name":"five","run":"run-1"}`, "-.json": `{"format":1,"name":"-","run":"run-1"}`,
		} {
			if _, err := blob.PutBytes(t.Context(), store, path.Join("engines/run-1", key), []byte(data), blob.Always); err != nil {
				t.Fatal(err)
			}
		}
		reader := lease.NewReader(store, "run-1", time.Now, 0)
		if got := alive(t, reader); got != "" {
			t.Errorf("%q are alive, want none", got)
		}
		hold(t, store, entry("one", "a"))
		if got := alive(t, reader); got != "one" {
			t.Errorf("%q are alive, want the one that replaced what was no lease", got)
		}
		if _, err := lease.Hold(t.Context(), lease.Config{Store: store, Entry: entry("two", "a")}); err == nil || !strings.Contains(err.Error(), "format 9") {
			t.Errorf("error %v for a lease of a later program", err)
		}
		for _, name := range []string{"", "a/b", "..", "-a", strings.Repeat("a", 64), "a b", "\x00"} {
			if _, err := lease.Hold(t.Context(), lease.Config{Store: store, Entry: entry(name, "a")}); err == nil {
				t.Errorf("name %q is taken", name)
			}
		}
	})
}

// TestLostAnswers: a renewal whose answer was lost, and an entry that somebody deleted,
// do not end an engine.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		l := hold(t, store, entry("one", "a"))
		stop := keep(t, l)
		time.Sleep(3*lease.Every + time.Second)
		if err := store.Delete(t.Context(), "engines/run-1/one.json"); err != nil {
			t.Fatal(err)
		}
		reader := lease.NewReader(store, "run-1", time.Now, 0)
		time.Sleep(2 * lease.Every)
		if got := alive(t, reader); got != "one" {
			t.Errorf("%q are alive, want one", got)
		}
		if err := l.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lease.Every)
		if found, err := reader.Look(t.Context()); err != nil || len(found) != 1 || !found[0].Draining {
			t.Errorf("%+v (%v), want a draining engine", found, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// lossy is a store that loses the answer to a swap, which it makes.
type lossy struct {
	blob.Store
	lose atomic.Int32
}

func (s *lossy) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	ref, err := s.Store.Swap(ctx, key, old, data)
	if err == nil && s.lose.CompareAndSwap(1, 0) {
		return blob.Ref{}, errors.New("the answer is lost")
	}
	return ref, err
}

// TestAnswersToChangesAreLost: an engine that ends gives its name back, and one that drains says so, also
// where the store did not answer the beat before, or this one.
func TestAnswersToChangesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{Store: memblob.New()}
		l := hold(t, store, entry("one", "a"))
		stop := keep(t, l)
		store.lose.Store(1)
		if err := l.Drain(t.Context()); err == nil {
			t.Error("no error though the answer was lost")
		}
		time.Sleep(lease.Every + time.Second)
		found, err := lease.NewReader(store, "run-1", time.Now, 0).Look(t.Context())
		if err != nil || len(found) != 1 || !found[0].Draining {
			t.Errorf("%+v, error %v: want an engine that drains", found, err)
		}
		store.lose.Store(1)
		time.Sleep(lease.Every)
		if err := errors.Join(l.Leave(t.Context()), stop()); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		hold(t, store, entry("one", "b"))
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the next engine of the name waited for %v", waited)
		}
	})
}
