package sharedmem_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/sharedmem"
)

var network = model.Config{VocabSize: 64, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
	HeadDim: 16, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}

func weights(t *testing.T, seed uint64) []model.Tensor {
	t.Helper()
	w, err := model.InitialTensors(network, seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// host opens a folder that this test alone has.
func host(t *testing.T, folder string, log *bytes.Buffer) *sharedmem.Segments {
	t.Helper()
	c := sharedmem.Config{Folder: folder}
	if log != nil {
		c.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	h, err := sharedmem.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func publish(t testing.TB, store blob.Store, h *sharedmem.Segments, run, prefix string, w []model.Tensor) blob.Ref {
	t.Helper()
	ref, err := checkpoint.PublishFrom(t.Context(), store, prefix, checkpoint.Policy{Model: network, Form: checkpoint.Form{ShardFrom: 1, Memory: h.ForRun(run)}}, checkpoint.SourceOf(w))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// check holds the weights of a policy to what was published, and returns how they came.
func check(t *testing.T, r *sharedmem.Reader, ref blob.Ref, want []model.Tensor) sharedmem.Moved {
	t.Helper()
	before := r.Moved()
	w, err := r.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range want {
		got, err := w.Stored(tensor.Name)
		if err != nil || !slices.Equal(got.Float32, tensor.Data) || !slices.Equal(got.Shape, tensor.Shape) {
			t.Fatalf("tensor %s differs, %v", tensor.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	after := r.Moved()
	return sharedmem.Moved{Process: after.Process - before.Process, Host: after.Host - before.Host, Store: after.Store - before.Store, Kept: after.Kept - before.Kept}
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestEachWayHasTheSameWeights(t *testing.T) {
	store, folder := memblob.New(), filepath.Join(t.TempDir(), "shared")
	ours, others := host(t, folder, nil), host(t, folder, nil)
	defer ours.Close()
	w := weights(t, 1)
	ref := publish(t, store, ours, "r", "runs/r/policies/v1", w)
	if m := check(t, &sharedmem.Reader{Store: store, Segments: ours}, ref, w); m.Process == 0 || m.Host+m.Store+m.Kept != 0 {
		t.Errorf("in the trainer's process the weights came as %+v", m)
	}
	if m := check(t, &sharedmem.Reader{Store: store, Segments: others}, ref, w); m.Host == 0 || m.Process+m.Store+m.Kept != 0 {
		t.Errorf("in another process the weights came as %+v", m)
	}
	if m := check(t, &sharedmem.Reader{Store: store}, ref, w); m.Store == 0 || m.Process+m.Host+m.Kept != 0 {
		t.Errorf("on another host the weights came as %+v", m)
	}
	info, err := os.Stat(filepath.Join(folder, ref.SHA256+".weights"))
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the segment has mode %v, %v", info.Mode(), err)
	}
	// The next policy of the run takes the place of this one, and an engine that has it
	// mapped goes on.
	reader := &sharedmem.Reader{Store: store, Segments: ours}
	mapped, err := reader.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	next := publish(t, store, ours, "r", "runs/r/policies/v2", weights(t, 2))
	if got := files(t, folder); !slices.Equal(got, []string{next.SHA256 + ".weights"}) {
		t.Errorf("the folder has %v, want the newest segment alone", got)
	}
	if got, err := mapped.Stored(w[0].Name); err != nil || !slices.Equal(got.Float32, w[0].Data) {
		t.Errorf("weights in use have changed, %v", err)
	}
	if err := mapped.Close(); err != nil {
		t.Fatal(err)
	}
	if m := check(t, reader, ref, w); m.Store == 0 {
		t.Errorf("the policy before came as %+v, want the store", m)
	}
	ours.Close()
	if got := files(t, folder); len(got) != 0 {
		t.Errorf("a trainer that ended leaves %v", got)
	}
}

// TestKeptShardsAreNotReadAgain: an engine that keeps shards reads what it lacks.
func TestKeptShardsAreNotReadAgain(t *testing.T) {
	store := memblob.New()
	w := weights(t, 1)
	r := &sharedmem.Reader{Store: store, Keep: true}
	first := check(t, r, publish(t, store, nil, "r", "policies/1", w), w)
	again := check(t, r, publish(t, store, nil, "r", "policies/2", w), w)
	if again.Store != 0 || again.Kept != first.Store {
		t.Errorf("an equal policy came as %+v after %+v", again, first)
	}
}

func TestPrefetchedPolicyIsReady(t *testing.T) {
	store := memblob.New()
	w := weights(t, 1)
	ref := publish(t, store, nil, "r", "policies/1", w)
	other := publish(t, store, nil, "r", "policies/2", weights(t, 2))
	r := &sharedmem.Reader{Store: store}
	defer r.Close()
	r.Prefetch(t.Context(), other)
	r.Prefetch(t.Context(), ref) // the last one counts
	r.Prefetch(t.Context(), ref)
	check(t, r, ref, w)
	moved := r.Moved()
	if n := int64(4 * network.NumParameters()); moved.Store < n || moved.Store > 3*n {
		t.Errorf("%d bytes were read for weights of %d, want one or two policies", moved.Store, n)
	}
	gone := blob.Ref{Key: "policies/3/policy.json", SHA256: strings.Repeat("0", 64)}
	r.Prefetch(t.Context(), gone)
	if _, err := r.Open(t.Context(), gone); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a policy that is not there gives %v", err)
	}
}

// stuckStore answers the first read of a shard only when its context ends.
type stuckStore struct {
	blob.Store
	stuck atomic.Bool
}

func (s *stuckStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "cas/") && s.stuck.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Get(ctx, key)
}

// TestGivenUpPrefetchEnds: a policy that is no longer wanted is not read to its end, so that
// a caller who changes their mind does not fill the memory, and Close does not wait for a
// store that hangs.
func TestGivenUpPrefetchEnds(t *testing.T) {
	for what, giveUp := range map[string]func(*sharedmem.Reader, blob.Ref){
		"another policy": func(r *sharedmem.Reader, next blob.Ref) { r.Prefetch(t.Context(), next) },
		"close":          func(*sharedmem.Reader, blob.Ref) {},
	} {
		t.Run(what, func(t *testing.T) {
			store := &stuckStore{Store: memblob.New()}
			w := weights(t, 2)
			first := publish(t, store, nil, "r", "policies/1", weights(t, 1))
			next := publish(t, store, nil, "r", "policies/2", w)
			r := &sharedmem.Reader{Store: store}
			store.stuck.Store(true)
			r.Prefetch(t.Context(), first)
			for store.stuck.Load() {
				time.Sleep(time.Millisecond)
			}
			giveUp(r, next)
			if what == "another policy" {
				check(t, r, next, w)
			}
			closed := make(chan struct{})
			go func() { r.Close(); close(closed) }()
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Fatal("the read that was given up goes on")
			}
		})
	}
}

// TestWrongSegmentsAreLeftOut: whatever lies under the name of a policy, the engine has
// the policy's weights in the end, and one line says why not from there.
func TestWrongSegmentsAreLeftOut(t *testing.T) {
	store, folder := memblob.New(), filepath.Join(t.TempDir(), "shared")
	ours := host(t, folder, nil)
	defer ours.Close()
	w := weights(t, 1)
	ref := publish(t, store, ours, "r", "runs/r/policies/v1", w)
	stray := publish(t, store, ours, "other", "runs/other/policies/v1", weights(t, 2))
	name := filepath.Join(folder, ref.SHA256+".weights")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(folder, stray.SHA256+".weights"))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)-8192] ^= 1
	for what, c := range map[string]struct {
		data []byte
		mode os.FileMode
		want string
	}{
		"of another run":        {foreign, 0o400, "of run other"},
		"a changed byte":        {changed, 0o400, "crc64nvme"},
		"cut short":             {whole[:8192], 0o400, "a shard of"},
		"empty":                 {nil, 0o400, "0 bytes"},
		"no header":             {make([]byte, 1<<20), 0o400, "header"},
		"others may write it":   {whole, 0o666, "mode 666"},
		"of a newer program":    {bytes.Replace(whole, []byte(`"format":1`), []byte(`"format":9`), 1), 0o400, "format 9"},
		"shards of other sizes": {bytes.Replace(whole, []byte(`"size":`), []byte(`"size":1`), 2), 0o400, ""},
	} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, c.mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		r := &sharedmem.Reader{Store: store, Segments: reading(folder), Log: slog.New(slog.NewTextHandler(&log, nil))}
		if m := check(t, r, ref, w); m.Store == 0 || m.Host != 0 {
			t.Errorf("%s: the weights came as %+v", what, m)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) {
			t.Errorf("%s: the log says %q, want one line with %q", what, text, c.want)
		}
	}
}

// reading is a host that was opened before the segments that a test writes, whose locks
// nobody holds.
func reading(folder string) *sharedmem.Segments {
	return &sharedmem.Segments{Config: sharedmem.Config{Folder: folder, Log: slog.New(slog.DiscardHandler)}}
}

func TestNoRoomIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	store := memblob.New()
	h := host(t, filepath.Join(t.TempDir(), "shared"), &log)
	h.Available = func() int64 { return 4096 }
	w := weights(t, 1)
	for i := range 3 {
		ref := publish(t, store, h, "r", fmt.Sprintf("policies/%d", i), w)
		if m := check(t, &sharedmem.Reader{Store: store, Segments: h}, ref, w); m.Store == 0 {
			t.Errorf("without room the weights came as %+v", m)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, &log)
	}
}

func TestFolderOfOthersIsRefused(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // what is refused
		t.Fatal(err)
	}
	if _, err := sharedmem.Open(sharedmem.Config{Folder: folder}); err == nil || !strings.Contains(err.Error(), "mode 755") {
		t.Errorf("a folder that others may read gives %v", err)
	}
}

// TestSegmentsOfTheDead: a trainer that is killed leaves a segment, which an engine may
// still take, and which the next process deletes.
func TestSegmentsOfTheDead(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SEGMENT_TRAINER="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ref blob.Ref
	if err := json.Unmarshal(line, &ref); err != nil {
		t.Fatal(err)
	}
	store, err := fileblob.New(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "shared")
	living := host(t, folder, nil) // it deletes nothing of a process that lives
	r := &sharedmem.Reader{Store: store, Segments: living}
	if m := check(t, r, ref, weights(t, 7)); m.Host == 0 {
		t.Errorf("from a process that lives the weights came as %+v", m)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if m := check(t, r, ref, weights(t, 7)); m.Host == 0 {
		t.Errorf("from a process that died the weights came as %+v", m)
	}
	host(t, folder, nil)
	if got := files(t, folder); len(got) != 0 {
		t.Errorf("after the next start the folder has %v", got)
	}
	if m := check(t, r, ref, weights(t, 7)); m.Store == 0 {
		t.Errorf("without a segment the weights came as %+v", m)
	}
}

func TestMain(m *testing.M) {
	dir := os.Getenv("SEGMENT_TRAINER")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := train(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.Sleep(time.Hour) // until it is killed
}

// held keeps the locks of a process that only waits.
var held []any

// train publishes a policy and leaves a second segment half made.
func train(dir string) error {
	store, err := fileblob.New(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	h, err := sharedmem.Open(sharedmem.Config{Folder: filepath.Join(dir, "shared")})
	if err != nil {
		return err
	}
	w, err := model.InitialTensors(network, 7)
	if err != nil {
		return err
	}
	ref, err := checkpoint.PublishFrom(context.Background(), store, "runs/r/policies/v1",
		checkpoint.Policy{Model: network, Form: checkpoint.Form{ShardFrom: 1, Memory: h.ForRun("r")}}, checkpoint.SourceOf(w))
	if err != nil {
		return err
	}
	_, keep, drop, err := h.ForRun("half").Take([]int64{1 << 20})
	if err != nil {
		return err
	}
	held = []any{h, keep, drop}
	return json.NewEncoder(os.Stdout).Encode(ref)
}
