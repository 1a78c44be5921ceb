package learner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/fault"
	"temper/internal/run/runtest"
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
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	m := runtest.Boot(h.Store, &runtest.Fate{})
	m.Store = listless{h.Store}
	if err := h.Script(t, 3)[3](m); err != nil {
		t.Fatal(err)
	}
	if err := h.Store.Delete(t.Context(), h.Layout.Head()); err != nil {
		t.Fatal(err)
	}
	if err := h.Store.Delete(t.Context(), h.Layout.Step(3).TrainResult()); err != nil {
		t.Fatal(err)
	}
	m = runtest.Boot(h.Store, &runtest.Fate{})
	m.Store = listless{h.Store}
	if err := h.Script(t, 3)[3](m); !errors.Is(err, errListed) {
		t.Errorf("without a head: error %v, want the one of the list", err)
	}
}

// trained is a run with checkpoints at the cursors 4 and 6 and a step to come.
func trained(t *testing.T) (h *runtest.Run, next func(*runtest.Machine) error, policy string) {
	t.Helper()
	h = runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 4, 5)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	next = h.Script(t, 4)[3]
	calm := runtest.Fill(t, runtest.Dump(t, h.Store))
	runtest.Play(t, calm, &runtest.Fate{}, true, []func(*runtest.Machine) error{next})
	return h, next, runtest.Dump(t, calm)[h.Layout.Policy(4).Ref()]
}

func manifestOf(h *runtest.Run, cursor int) string {
	return fmt.Sprintf("%s/step-%06d/manifest.json", h.Layout.Checkpoints(), cursor)
}

// TestRestorePassesDamageOver: whatever of the newest checkpoint is lost, the
// older one serves, the run ends with the same bits, and the operator is told.
func TestRestorePassesDamageOver(t *testing.T) {
	h, next, want := trained(t)
	healthy := runtest.Dump(t, h.Store)
	newest := manifestOf(h, 6)
	for name, c := range map[string]struct {
		harm func(map[string]string)
		warn string // in the event log; "" for nothing
	}{
		"head points nowhere":   {func(s map[string]string) { delete(s, newest) }, "checkpoint of step 2 is unreadable"},
		"head is damaged":       {func(s map[string]string) { s[h.Layout.Head()] = `{"epoch": 1` }, ""},
		"head is gone":          {func(s map[string]string) { delete(s, h.Layout.Head()) }, ""},
		"manifest is truncated": {func(s map[string]string) { s[newest] = s[newest][:100] }, "checkpoint of step 2 is unreadable"},
		"manifest and head are gone": {func(s map[string]string) {
			delete(s, newest)
			delete(s, h.Layout.Head())
		}, ""},
		"manifest is truncated, head is gone": {func(s map[string]string) {
			s[newest] = s[newest][:100]
			delete(s, h.Layout.Head())
		}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			content := maps.Clone(healthy)
			c.harm(content)
			store := runtest.Fill(t, content)
			runtest.Play(t, store, &runtest.Fate{}, true, []func(*runtest.Machine) error{next})
			got := runtest.Dump(t, store)
			if got[h.Layout.Policy(4).Ref()] != want {
				t.Errorf("policy 4 is %s, want %s", got[h.Layout.Policy(4).Ref()], want)
			}
			events := ""
			for key, data := range got {
				if strings.HasPrefix(key, h.Layout.Events().Dir()+"/") {
					events += data
				}
			}
			if (events != "") != (c.warn != "") || !strings.Contains(events, c.warn) {
				t.Errorf("events %q, want %q", events, c.warn)
			}
			var head checkpoint.Head
			if err := blob.ReadJSON(t.Context(), store, h.Layout.Head(), &head); err != nil || head.Step != 8 || head.Epoch < 2 {
				t.Errorf("head %+v, error %v: want cursor 8 and an epoch above the one before", head, err)
			}
		})
	}
}

// TestRestoreRefusesWhatIsNotItsOwn: the error names all that differs and the
// way out, and nothing of the run changes.
func TestRestoreRefusesWhatIsNotItsOwn(t *testing.T) {
	h, next, _ := trained(t)
	healthy := runtest.Dump(t, h.Store)
	newest := manifestOf(h, 6)
	for name, c := range map[string]struct {
		old, with string
		kind      fault.Kind // "" is retried: another worker may be able to
		want      []string
	}{
		"another configuration": {`"config_sha256": "`, `"config_sha256": "0000`, fault.Conflict, []string{"config_sha256 is 0000", "put back the configuration", "/step-000006"}},
		"another run":           {`"run": "demo"`, `"run": "other"`, fault.Conflict, []string{"run is other, want demo", "move the folder away"}},
		"another architecture":  {`"hidden_size": 8`, `"hidden_size": 16`, fault.Conflict, []string{"model.hidden_size is 16, want 8"}},
		"a newer program":       {`"format": 3`, `"format": 4`, "", []string{"format 4, this program reads up to 3: update temper"}},
	} {
		t.Run(name, func(t *testing.T) {
			content := maps.Clone(healthy)
			content[newest] = strings.Replace(content[newest], c.old, c.with, 1)
			delete(content, h.Layout.Head()) // it pins the manifest's bytes
			store := runtest.Fill(t, content)
			before := runtest.Durable(t, store)
			err := next(runtest.Boot(store, &runtest.Fate{}))
			if c.kind != "" {
				for _, text := range c.want {
					runtest.WantFault(t, err, c.kind, text)
				}
			} else if !errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), c.want[0]) {
				t.Errorf("error %v, want ErrNewer saying %q", err, c.want[0])
			}
			after := runtest.Durable(t, store)
			delete(after, h.Layout.Head()) // the lease was taken
			if diff := cmp.Diff(after, before); diff != "" {
				t.Errorf("changed: got -, want +\n%s", diff)
			}
		})
	}
	t.Run("a head of a newer program", func(t *testing.T) {
		content := maps.Clone(healthy)
		content[h.Layout.Head()] = strings.Replace(content[h.Layout.Head()], `"format": 1`, `"format": 2`, 1)
		store := runtest.Fill(t, content)
		if err := next(runtest.Boot(store, &runtest.Fate{})); !errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), "update temper") {
			t.Errorf("error %v, want ErrNewer", err)
		}
		if diff := cmp.Diff(runtest.Dump(t, store), content); diff != "" {
			t.Errorf("changed: got -, want +\n%s", diff)
		}
	})
}

// TestFullDiskIsWaitedFor: a save on a disk that is full fails its activity, as
// often as it is repeated; when there is room the run goes on with the same bits.
func TestFullDiskIsWaitedFor(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 4, 5)
	content := runtest.Dump(t, h.Store)
	script := h.Script(t, 1, 2, 4, 5)
	calm := runtest.Fill(t, content)
	runtest.Play(t, calm, &runtest.Fate{}, false, script)

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
		runtest.Put(t, store, key, data)
	}
	m := runtest.Boot(store, &runtest.Fate{})
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
	if diff := cmp.Diff(runtest.Durable(t, store), runtest.Durable(t, calm)); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestUnreadableCheckpointIsPassedOver: what an older one lacks is made again.
func TestUnreadableCheckpointIsPassedOver(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	healthy := runtest.Dump(t, h.Store)
	next := h.Script(t, 3)[3:]
	runtest.Play(t, h.Store, &runtest.Fate{}, true, next)
	want := runtest.Dump(t, h.Store)
	damage := map[string]func(map[string]string, string){
		"missing": func(content map[string]string, key string) { delete(content, key) },
		"changed": func(content map[string]string, key string) { content[key] = "x" + content[key][1:] },
	}
	for name, harm := range damage {
		for n := 1; n <= 2; n++ { // the newest, and both
			content := maps.Clone(healthy)
			left := n
			for _, cursor := range []int{6, 4} {
				var m struct{ Shards map[string][]blob.Ref }
				manifest := fmt.Sprintf("%s/step-%06d/manifest.json", h.Layout.Checkpoints(), cursor)
				if err := json.Unmarshal([]byte(content[manifest]), &m); err != nil {
					t.Fatal(err)
				}
				if left > 0 {
					harm(content, m.Shards["weights"][0].Key)
					left--
				}
			}
			store := runtest.Fill(t, content)
			runtest.Play(t, store, &runtest.Fate{}, true, next)
			key := h.Layout.Policy(3).Ref()
			if got := runtest.Dump(t, store)[key]; got == "" || got != want[key] {
				t.Errorf("%d %s: policy 3 is %s, want %s", n, name, got, want[key])
			}
		}
	}
}

// TestTrainerThatIsAheadGoesBack: results that are asked for again and were lost
// are made again, from a state that has moved on.
func TestTrainerThatIsAheadGoesBack(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3, 4, 5)
	script := h.Script(t, 1, 2, 3, 4, 5)
	m := runtest.Play(t, h.Store, &runtest.Fate{}, false, script)
	want := runtest.Durable(t, h.Store)
	for _, key := range []string{h.Layout.Policy(0).Ref(), h.Layout.Policy(1).Ref(), h.Layout.Step(1).TrainResult(), h.Layout.Step(4).TrainResult(), h.Layout.SFT().Result(2)} {
		if err := h.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{6, 3, 2, 0} { // steps 4 and 1, policy 0, the first chunk of SFT
		if err := script[n](m); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(runtest.Durable(t, h.Store), want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestAnotherTrainerWentOn: a worker whose state is behind takes the other's
// checkpoint instead of repeating its updates.
func TestAnotherTrainerWentOn(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 4)
	script := h.Script(t, 1, 2, 4)
	f := runtest.Fate{}
	m := runtest.Boot(h.Store, &f)
	if err := script[0](m); err != nil {
		t.Fatal(err)
	}
	runtest.Play(t, h.Store, &runtest.Fate{}, true, script[1:5])
	from := len(f.Names)
	if err := script[5](m); err != nil {
		t.Fatal(err)
	}
	updates := slices.DeleteFunc(f.Names[from:], func(s string) bool { return s != "after update" && s != "after sft" })
	if len(updates) != 1 {
		t.Errorf("%d updates, want that of step 4 alone: %v", len(updates), updates)
	}
}
