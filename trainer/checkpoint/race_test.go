package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/blob/memblob"
)

// until lets the calls of the newest process happen up to the one named.
func (w *world) until(name string) bool {
	for w.living() > 0 {
		calls := w.calls()
		for i, c := range calls {
			if c.process.id != w.started-1 {
				continue
			}
			if strings.HasPrefix(c.name, name) {
				return true
			}
			w.let(i)
			break
		}
		time.Sleep(pollCollect)
		if calls := w.calls(); len(calls) == 0 || calls[len(calls)-1].process.id != w.started-1 {
			return false
		}
	}
	return false
}

// TestSleepingCollectionTakesNothing: a collection that sleeps right before its
// deletion, for longer than anyone waits, deletes what nobody names any more.
func TestSleepingCollectionTakesNothing(t *testing.T) {
	for name, choice := range map[string]int{"save": 0, "adopt": 2*8 + 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{store: memblob.New()}
				src, err := Save(t.Context(), w.store, "runs/a/ckpt", 0, smallState(0))
				if err != nil {
					t.Fatal(err)
				}
				bytes, err := blob.ReadKey(t.Context(), w.store, src.Key)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.store.Delete(t.Context(), src.Key); err != nil {
					t.Fatal(err)
				}
				w.begin(7 * 8)
				if !w.until("delete cas/80") {
					t.Fatal("the collection deletes nothing")
				}
				if name == "adopt" { // whose source comes back, from a backup
					if _, err := blob.PutBytes(t.Context(), w.store, src.Key, bytes, blob.Always); err != nil {
						t.Fatal(err)
					}
				}
				w.begin(choice)
				w.until("nothing")
				if w.living() != 1 {
					t.Fatalf("%d processes live, want the collection alone:\n%s", w.living(), strings.Join(w.log, "\n"))
				}
				lost := w.finish()
				if name == "adopt" { // what the backup's manifest names was not to be had
					if err := w.store.Delete(t.Context(), src.Key); err != nil {
						t.Fatal(err)
					}
					lost = w.missing()
				}
				entries, err := List(t.Context(), w.store, "runs/"+map[string]string{"save": "a", "adopt": "b"}[name]+"/ckpt")
				if lost != "" || err != nil || len(entries) != 1 {
					t.Errorf("%s; %d checkpoints, error %v\n%s", lost, len(entries), err, strings.Join(w.log, "\n"))
				}
			})
		})
	}
}

// TestWritersAndCollectorsRace on real files: whatever a manifest names at the
// end is there and whole.
func TestWritersAndCollectorsRace(t *testing.T) {
	store, err := fileblob.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var wrong []error
	note := func(err error) {
		if err == nil || errors.Is(err, blob.ErrNotExist) || errors.Is(err, errMoved) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, err)
	}
	for writer := range 3 {
		prefix := fmt.Sprintf("runs/%d/ckpt", writer)
		wg.Go(func() {
			for step := range 8 {
				_, err := Save(ctx, store, prefix, step, smallState(step))
				note(err)
				note(Prune(ctx, store, "runs", prefix, func(int) bool { return false }))
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 6 {
				_, err := Collect(ctx, store, "runs", CollectOptions{Grace: -1})
				note(err)
			}
		})
	}
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("errors: %v", wrong)
	}
	for writer := range 3 {
		entries, err := List(ctx, store, fmt.Sprintf("runs/%d/ckpt", writer))
		if err != nil || len(entries) == 0 {
			t.Errorf("writer %d: %d checkpoints, error %v", writer, len(entries), err)
		}
		for _, e := range entries {
			if _, _, err := Load(ctx, store, e.Ref); err != nil {
				t.Errorf("writer %d: %v", writer, err)
			}
		}
	}
}
