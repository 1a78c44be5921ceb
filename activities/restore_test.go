package activities_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/fault"
	"temper/trainer/checkpoint"
)

// listless is a store in which the checkpoints of a run cannot be listed.
type listless struct{ blob.Store }

var errListed = errors.New("listed")

func (l listless) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if strings.Contains(prefix, "/checkpoints/step-") {
		return nil, errListed
	}
	return l.Store.List(ctx, prefix)
}

// TestRestoreGoesByTheHead: with a head nothing has to be listed.
func TestRestoreGoesByTheHead(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 3)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	m := boot(h.store, &fate{})
	m.Learner.Store = listless{h.store}
	if err := h.script(t, 3)[3](m); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Delete(t.Context(), h.layout.Head()); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Delete(t.Context(), h.layout.TrainResult(3)); err != nil {
		t.Fatal(err)
	}
	m = boot(h.store, &fate{})
	m.Learner.Store = listless{h.store}
	if err := h.script(t, 3)[3](m); !errors.Is(err, errListed) {
		t.Errorf("without a head: error %v, want the one of the list", err)
	}
}

// trained is a run with checkpoints at the cursors 4 and 6 and a step to come.
func trained(t *testing.T) (h *house, next func(*machine) error, policy string) {
	t.Helper()
	h = newHouse(t, nil)
	h.withBatches(t, 1, 2, 4, 5)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	next = h.script(t, 4)[3]
	calm := fill(t, dump(t, h.store))
	play(t, calm, &fate{}, true, []func(*machine) error{next})
	return h, next, dump(t, calm)[h.layout.PolicyRef(4)]
}

func manifestOf(h *house, cursor int) string {
	return fmt.Sprintf("%s/step-%06d/manifest.json", h.layout.Checkpoints(), cursor)
}

// TestRestorePassesDamageOver: whatever of the newest checkpoint is lost, the
// older one serves, the run ends with the same bits, and the operator is told.
func TestRestorePassesDamageOver(t *testing.T) {
	h, next, want := trained(t)
	healthy := dump(t, h.store)
	newest := manifestOf(h, 6)
	for name, c := range map[string]struct {
		harm func(map[string]string)
		warn string // in the event log; "" for nothing
	}{
		"head points nowhere":   {func(s map[string]string) { delete(s, newest) }, "checkpoint of step 2 is unreadable"},
		"head is damaged":       {func(s map[string]string) { s[h.layout.Head()] = `{"epoch": 1` }, ""},
		"head is gone":          {func(s map[string]string) { delete(s, h.layout.Head()) }, ""},
		"manifest is truncated": {func(s map[string]string) { s[newest] = s[newest][:100] }, "checkpoint of step 2 is unreadable"},
		"manifest and head are gone": {func(s map[string]string) {
			delete(s, newest)
			delete(s, h.layout.Head())
		}, ""},
		"manifest is truncated, head is gone": {func(s map[string]string) {
			s[newest] = s[newest][:100]
			delete(s, h.layout.Head())
		}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			content := maps.Clone(healthy)
			c.harm(content)
			store := fill(t, content)
			play(t, store, &fate{}, true, []func(*machine) error{next})
			got := dump(t, store)
			if got[h.layout.PolicyRef(4)] != want {
				t.Errorf("policy 4 is %s, want %s", got[h.layout.PolicyRef(4)], want)
			}
			events := ""
			for key, data := range got {
				if strings.HasPrefix(key, h.layout.Events()+"/") {
					events += data
				}
			}
			if (events != "") != (c.warn != "") || !strings.Contains(events, c.warn) {
				t.Errorf("events %q, want %q", events, c.warn)
			}
			var head checkpoint.Head
			if err := blob.ReadJSON(t.Context(), store, h.layout.Head(), &head); err != nil || head.Step != 8 || head.Epoch < 2 {
				t.Errorf("head %+v, error %v: want cursor 8 and an epoch above the one before", head, err)
			}
		})
	}
}

// TestRestoreRefusesWhatIsNotItsOwn: the error names all that differs and the
// way out, and nothing of the run changes.
func TestRestoreRefusesWhatIsNotItsOwn(t *testing.T) {
	h, next, _ := trained(t)
	healthy := dump(t, h.store)
	newest := manifestOf(h, 6)
	for name, c := range map[string]struct {
		old, with string
		kind      string // "" is retried: another worker may be able to
		want      []string
	}{
		"another configuration": {`"config_sha256": "`, `"config_sha256": "0000`, string(fault.Conflict), []string{"config_sha256 is 0000", "put back the configuration", "/step-000006"}},
		"another run":           {`"run": "demo"`, `"run": "other"`, string(fault.Conflict), []string{"run is other, want demo", "move the folder away"}},
		"another architecture":  {`"hidden_size": 8`, `"hidden_size": 16`, string(fault.Conflict), []string{"model.hidden_size is 16, want 8"}},
		"a newer program":       {`"format": 3`, `"format": 4`, "", []string{"format 4, this program reads up to 3: update temper"}},
	} {
		t.Run(name, func(t *testing.T) {
			content := maps.Clone(healthy)
			content[newest] = strings.Replace(content[newest], c.old, c.with, 1)
			delete(content, h.layout.Head()) // it pins the manifest's bytes
			store := fill(t, content)
			before := durable(t, store)
			err := next(boot(store, &fate{}))
			if c.kind != "" {
				for _, text := range c.want {
					wantKind(t, err, c.kind, text)
				}
			} else if !errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), c.want[0]) {
				t.Errorf("error %v, want ErrNewer saying %q", err, c.want[0])
			}
			after := durable(t, store)
			delete(after, h.layout.Head()) // the lease was taken
			if diff := cmp.Diff(after, before); diff != "" {
				t.Errorf("changed: got -, want +\n%s", diff)
			}
		})
	}
	t.Run("a head of a newer program", func(t *testing.T) {
		content := maps.Clone(healthy)
		content[h.layout.Head()] = strings.Replace(content[h.layout.Head()], `"format": 1`, `"format": 2`, 1)
		store := fill(t, content)
		if err := next(boot(store, &fate{})); !errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), "update temper") {
			t.Errorf("error %v, want ErrNewer", err)
		}
		if diff := cmp.Diff(dump(t, store), content); diff != "" {
			t.Errorf("changed: got -, want +\n%s", diff)
		}
	})
}

// TestFullDiskIsWaitedFor: a save on a disk that is full fails its activity, as
// often as it is repeated; when there is room the run goes on with the same bits.
func TestFullDiskIsWaitedFor(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 4, 5)
	content := dump(t, h.store)
	script := h.script(t, 1, 2, 4, 5)
	calm := fill(t, content)
	play(t, calm, &fate{}, false, script)

	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range content {
		put(t, store, key, data)
	}
	m := boot(store, &fate{})
	failed := 0
	for i, activity := range script {
		ballast := filepath.Join(dir, ".ballast")
		if i == 1 || i == 4 { // the end of SFT, which waits for its save, and step 2, which does not
			if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("ballast: %v, want a full disk", err)
			}
		}
		for try := 1; ; try++ {
			err := activity(m)
			if err == nil {
				break
			}
			failed++
			if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "free some space") || try > 4 {
				t.Fatalf("activity %d, try %d: %v, want one that says that the disk is full", i, try, err)
			}
			if try == 3 {
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if failed < 6 {
		t.Errorf("%d attempts failed, want 3 of either activity", failed)
	}
	if diff := cmp.Diff(durable(t, store), durable(t, calm)); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}
