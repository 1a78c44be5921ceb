package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

func network() model.Config {
	return model.Config{VocabSize: 8, HiddenSize: 4, IntermediateSize: 6, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 2, MaxPositionEmbeddings: 16, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
}

// randomTensors fills every weight of the model.
func randomTensors(seed uint64) []model.Tensor {
	draw := rl.Rand(seed)
	var out []model.Tensor
	for _, spec := range network().Tensors() {
		t := model.Tensor{Name: spec.Name, Shape: spec.Shape}
		for range spec.Size() {
			t.Data = append(t.Data, float32(draw.NormFloat64()))
		}
		out = append(out, t)
	}
	return out
}

// publish stores a policy whose weights are in memory.
func publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error) {
	weights := checkpoint.SourceOf(p.Weights)
	p.Weights = nil
	return checkpoint.PublishFrom(ctx, store, prefix, p, weights)
}

func state(seed uint64) checkpoint.State {
	return checkpoint.State{Counters: checkpoint.Counters{Updates: 3, TotalUpdates: int64(seed), Schedule: 9}, Model: network(),
		Weights: randomTensors(seed), FirstMoments: randomTensors(seed + 1000), SecondMoments: randomTensors(seed + 2000)}
}

// byName compares tensors whatever their order.
var byName = cmp.Transformer("byName", func(ts []model.Tensor) map[string]model.Tensor {
	m := map[string]model.Tensor{}
	for _, t := range ts {
		m[t.Name] = t
	}
	return m
})

func keys(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()
	infos, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, info := range infos {
		out = append(out, info.Key)
	}
	return out
}

func save(t *testing.T, s blob.Store, step int, st checkpoint.State) blob.Ref {
	t.Helper()
	ref, err := checkpoint.Save(t.Context(), s, "runs/r/ckpt", step, st)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestSaveLoadRoundTrip(t *testing.T) {
	s := memblob.New()
	want := state(1)
	ref := save(t, s, 12, want)
	step, got, err := checkpoint.Load(t.Context(), s, ref)
	if err != nil || step != 12 {
		t.Fatalf("step %d, error %v", step, err)
	}
	if diff := cmp.Diff(want, got, byName); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
	if again := save(t, s, 12, want); again != ref {
		t.Errorf("saving again gave %+v, want %+v", again, ref)
	}
}

func TestSaveNeverReplaces(t *testing.T) {
	s := memblob.New()
	ref := save(t, s, 12, state(1))
	if _, err := checkpoint.Save(t.Context(), s, "runs/r/ckpt", 12, state(2)); !errors.Is(err, blob.ErrExists) {
		t.Errorf("error %v, want ErrExists", err)
	}
	if _, got, err := checkpoint.Load(t.Context(), s, ref); err != nil || got.Counters.TotalUpdates != 1 {
		t.Errorf("the first checkpoint is gone: %+v, error %v", got.Counters, err)
	}
}

// brokenStore fails each Put after the first n.
type brokenStore struct {
	*memblob.Store
	mu sync.Mutex // shards are put in parallel
	n  int
}

var errBroken = errors.New("store broke")

func (b *brokenStore) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	b.mu.Lock()
	b.n--
	broke := b.n < 0
	b.mu.Unlock()
	if broke {
		return blob.Ref{}, errBroken
	}
	return b.Store.Put(ctx, key, r, cond)
}

// TestCrashesLeaveNoHalfCheckpoint stops a Save and a Publish after each of
// their puts: until the last one nothing is there, and a retry completes it.
func TestCrashesLeaveNoHalfCheckpoint(t *testing.T) {
	policy := checkpoint.Policy{Model: network(), Weights: randomTensors(1), Tokenizer: []byte("{}")}
	for puts := range 5 {
		s := &brokenStore{Store: memblob.New(), n: puts}
		if _, err := checkpoint.Save(t.Context(), s, "runs/r/ckpt", 1, state(1)); !errors.Is(err, errBroken) {
			t.Fatalf("%d puts: error %v, want that of the store; a checkpoint has 3 shards, an announcement and a manifest", puts, err)
		}
		if entries, err := checkpoint.List(t.Context(), s, "runs/r/ckpt"); err != nil || len(entries) != 0 {
			t.Errorf("%d puts: checkpoints %v, error %v; want none", puts, entries, err)
		}
		if _, err := publish(t.Context(), &brokenStore{Store: s.Store, n: min(puts, 3)}, "policy", policy); !errors.Is(err, errBroken) {
			t.Fatalf("%d puts: error %v, want that of the store; a policy has 4 blobs", puts, err)
		}
		if _, err := s.Stat(t.Context(), "policy/policy.json"); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%d puts: the policy's manifest exists (error %v)", puts, err)
		}
		if _, _, err := checkpoint.Load(t.Context(), s, save(t, s.Store, 1, state(1))); err != nil {
			t.Errorf("%d puts: the retried checkpoint: %v", puts, err)
		}
		ref, err := publish(t.Context(), s.Store, "policy", policy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.LoadWeights(t.Context(), s, ref); err != nil {
			t.Errorf("%d puts: the retried policy: %v", puts, err)
		}
	}
}

func TestLoadNoticesDamage(t *testing.T) {
	s := memblob.New()
	ref := save(t, s, 1, state(1))
	shard := keys(t, s, "cas/")[1]
	data, err := blob.ReadKey(t.Context(), s, shard)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	data[len(data)-1] ^= 1
	if _, err := blob.PutBytes(t.Context(), s, shard, data, blob.Always); err != nil {
		t.Fatal(err)
	}
	if _, _, err := checkpoint.Load(t.Context(), s, ref); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("flipped bit: %v, want ErrCorrupt", err)
	}
	if err := s.Delete(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	if _, _, err := checkpoint.Load(t.Context(), s, ref); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("missing shard: %v, want ErrNotExist", err)
	}
}

func TestPrune(t *testing.T) {
	s := memblob.New()
	same := state(1) // step 3 shares its weights with step 1
	same.Counters.Updates = 77
	for step, st := range map[int]checkpoint.State{1: state(1), 2: state(2), 3: same, 10: state(4)} {
		save(t, s, step, st)
	}
	entries, err := checkpoint.List(t.Context(), s, "runs/r/ckpt")
	if err != nil {
		t.Fatal(err)
	}
	var steps []int
	for _, e := range entries {
		steps = append(steps, e.Step)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 10}, steps); diff != "" {
		t.Fatalf("listed:\n%s", diff)
	}
	if err := checkpoint.Prune(t.Context(), s, "runs", "runs/r/ckpt", func(step int) bool { return step == 3 }); err != nil {
		t.Fatal(err)
	}
	left, err := checkpoint.List(t.Context(), s, "runs/r/ckpt")
	if err != nil || len(left) != 2 || left[0].Step != 3 || left[1].Step != 10 {
		t.Fatalf("left %v, error %v; want steps 3 and 10", left, err)
	}
	for _, e := range left {
		if _, _, err := checkpoint.Load(t.Context(), s, e.Ref); err != nil {
			t.Errorf("step %d: %v", e.Step, err)
		}
	}
	if n := len(keys(t, s, "cas/")); n != 6 {
		t.Errorf("%d shards left, want the 6 of two checkpoints", n)
	}
}

func TestPruneDeletesNothingWhenTheNewestIsBroken(t *testing.T) {
	s := memblob.New()
	save(t, s, 1, state(1))
	old := keys(t, s, "cas/")
	save(t, s, 2, state(2))
	for _, key := range keys(t, s, "cas/") {
		if !strings.Contains(strings.Join(old, " "), key) {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := checkpoint.Prune(t.Context(), s, "runs", "runs/r/ckpt", func(int) bool { return false }); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("error %v, want the one of the newest checkpoint", err)
	}
	if entries, err := checkpoint.List(t.Context(), s, "runs/r/ckpt"); err != nil || len(entries) != 2 {
		t.Errorf("checkpoints %v, error %v; want both", entries, err)
	}
}

func TestPublishedFolderIsHuggingFaces(t *testing.T) {
	s := memblob.New()
	want := checkpoint.Policy{Model: network(), Weights: randomTensors(5), Tokenizer: []byte(`{"version":"1.0"}`)}
	ref, err := publish(t.Context(), s, "policies/v000001", want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"config.json", "model.safetensors", "policy.json", "tokenizer.json"},
		strings.Split(strings.ReplaceAll(strings.Join(keys(t, s, "policies/v000001/"), " "), "policies/v000001/", ""), " ")); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
	var config map[string]any
	if err := blob.ReadJSON(t.Context(), s, "policies/v000001/config.json", &config); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]any{"model_type": "qwen3", "hidden_size": 4.0, "head_dim": 2.0, "num_key_value_heads": 1.0,
		"tie_word_embeddings": true, "hidden_act": "silu", "torch_dtype": "float32"} {
		if config[key] != value {
			t.Errorf("config.json: %s is %v, want %v", key, config[key], value)
		}
	}
	if a, err := json.Marshal(config["architectures"]); err != nil || string(a) != `["Qwen3ForCausalLM"]` {
		t.Errorf("config.json: architectures %s, error %v", a, err)
	}
	got, err := checkpoint.LoadWeights(t.Context(), s, ref)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, byName); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
}

func TestPolicyTakesTheChatTemplateAlong(t *testing.T) {
	s := memblob.New()
	want := checkpoint.Policy{Model: network(), Weights: randomTensors(5), Tokenizer: []byte("{}"),
		Files: map[string][]byte{"chat_template.jinja": []byte("{{ messages }}"), "tokenizer_config.json": []byte(`{"eos_token": "x"}`)}}
	ref, err := publish(t.Context(), s, "p", want)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range want.Files {
		if stored, err := blob.ReadKey(t.Context(), s, "p/"+name); err != nil || string(stored) != string(data) {
			t.Errorf("%s: %q, error %v; want %q", name, stored, err, data)
		}
	}
	got, err := checkpoint.LoadWeights(t.Context(), s, ref)
	if diff := cmp.Diff(want, got, byName); err != nil || diff != "" {
		t.Errorf("error %v, want (-) got (+):\n%s", err, diff)
	}
	want.Files = map[string][]byte{"config.json": []byte("{}")}
	if _, err := publish(t.Context(), s, "q", want); err == nil || !strings.Contains(err.Error(), `"config.json"`) {
		t.Errorf("a file that would replace the configuration: error %v", err)
	}
}

func TestPublishIsIdempotentAndNeverReplaces(t *testing.T) {
	s := memblob.New()
	p := checkpoint.Policy{Model: network(), Weights: randomTensors(5)}
	ref, err := publish(t.Context(), s, "p", p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := publish(t.Context(), s, "p", p); err != nil || again != ref {
		t.Errorf("again: %+v, error %v; want %+v", again, err, ref)
	}
	p.Weights = randomTensors(6)
	if _, err := publish(t.Context(), s, "p", p); !errors.Is(err, blob.ErrExists) {
		t.Errorf("another policy: %v, want ErrExists", err)
	}
	if got, err := checkpoint.LoadWeights(t.Context(), s, ref); err != nil || got.Weights[0].Data[0] == p.Weights[0].Data[0] {
		t.Errorf("the first policy was damaged: error %v", err)
	}
}

// watchedStore looks at what a Put has asked of its source after some bytes.
type watchedStore struct {
	*memblob.Store
	look func()
}

func (w watchedStore) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	first := make([]byte, 9)
	if _, err := io.ReadFull(r, first); err != nil {
		return blob.Ref{}, err
	}
	if strings.HasSuffix(key, ".safetensors") {
		w.look()
	}
	return w.Store.Put(ctx, key, io.MultiReader(bytes.NewReader(first), r), cond)
}

// TestPublishHoldsOneTensor: a policy is encoded while the store reads it, and a
// source that fails leaves no manifest.
func TestPublishHoldsOneTensor(t *testing.T) {
	specs := network().Tensors()
	weights := make([]model.Tensor, len(specs))
	for i, spec := range specs {
		weights[i] = model.Tensor{Name: spec.Name, Shape: spec.Shape, Data: make([]float32, spec.Size())}
		weights[i].Data[0] = float32(i)
	}
	asked := 0
	source := func(name string) (model.Tensor, error) {
		asked++
		for _, w := range weights {
			if w.Name == name {
				return w, nil
			}
		}
		return model.Tensor{}, errBroken
	}
	streamed := memblob.New()
	watched := watchedStore{Store: streamed, look: func() {
		if asked > len(specs)+1 {
			t.Errorf("%d tensors were asked for before the first was read, want the %d for the hash and one", asked, len(specs))
		}
	}}
	ref, err := checkpoint.PublishFrom(t.Context(), watched, "p", checkpoint.Policy{Model: network()}, source)
	if err != nil || asked != 2*len(specs) {
		t.Errorf("error %v; %d tensors asked for, want %d", err, asked, 2*len(specs))
	}
	got, err := checkpoint.LoadWeights(t.Context(), streamed, ref)
	if diff := cmp.Diff(weights, got.Weights, byName); err != nil || diff != "" {
		t.Errorf("error %v, want (-) got (+):\n%s", err, diff)
	}
	weights = weights[1:]
	if _, err := checkpoint.PublishFrom(t.Context(), memblob.New(), "p", checkpoint.Policy{Model: network()}, source); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want that of the source", err)
	}
	weights = append(weights, model.Tensor{Name: specs[0].Name, Shape: specs[0].Shape, Data: make([]float32, 1)})
	if _, err := checkpoint.PublishFrom(t.Context(), memblob.New(), "p", checkpoint.Policy{Model: network()}, source); err == nil || !strings.Contains(err.Error(), specs[0].Name) {
		t.Errorf("a tensor of another size: error %v", err)
	}
	changed := memblob.New()
	weights[len(weights)-1].Data = make([]float32, specs[0].Size())
	asked = 0
	_, err = checkpoint.PublishFrom(t.Context(), changed, "p", checkpoint.Policy{Model: network()}, func(name string) (model.Tensor, error) {
		x, err := source(name)
		if asked == 2*len(specs) {
			x.Data = slices.Repeat([]float32{7}, len(x.Data))
		}
		return x, err
	})
	if !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("weights that change on the way: error %v, want ErrCorrupt", err)
	}
	if _, err := changed.Stat(t.Context(), "p/policy.json"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("weights that change on the way have a manifest: %v", err)
	}
}

// TestFencedSaveIsNoConflict: whoever took the run over may have stored another checkpoint
// of the step, by other hardware. The trainer before learns that it lost the run.
func TestFencedSaveIsNoConflict(t *testing.T) {
	s := memblob.New()
	acquire := func(holder string) *checkpoint.Lease {
		l, err := checkpoint.Acquire(t.Context(), s, "runs/r/head.json", holder, func(context.Context) (int64, error) { return 0, nil })
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before, now := acquire("before"), acquire("now")
	put := func(l *checkpoint.Lease, st checkpoint.State) error {
		_, err := checkpoint.SaveWith(t.Context(), s, "runs/r/ckpt", 12, st, checkpoint.SaveOptions{Lease: l})
		return err
	}
	if err := put(now, state(2)); err != nil {
		t.Fatal(err)
	}
	if err := put(before, state(1)); !errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, blob.ErrExists) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	if err := put(now, state(1)); !errors.Is(err, blob.ErrExists) {
		t.Errorf("error %v of who has the run, want ErrExists", err)
	}
}

// lateStore stores the first mark of a collection and loses the answer.
type lateStore struct {
	blob.Store
	lost bool
}

func (l *lateStore) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	ref, err := l.Store.Put(ctx, key, r, cond)
	if err == nil && !l.lost && strings.HasPrefix(key, "cas/gc/") {
		l.lost = true
		return blob.Ref{}, blob.ErrUnavailable
	}
	return ref, err
}

// TestACollectionThatFailedIsWaitedForByNobody: its mark was stored although the store said
// that it was not.
func TestACollectionThatFailedIsWaitedForByNobody(t *testing.T) {
	s := memblob.New()
	ref := save(t, s, 1, state(1))
	if err := s.Delete(t.Context(), ref.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Collect(t.Context(), &lateStore{Store: s}, "runs", checkpoint.CollectOptions{Grace: -1}); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	if left := keys(t, s, "cas/gc/"); len(left) > 0 {
		t.Errorf("left %v: each save of these shards waits for it", left)
	}
}

// pinnedLate is a store in which a pin comes right before a manifest is deleted, and whose
// next look at the pin fails.
type pinnedLate struct {
	blob.Store
	pin   func()
	fails bool
}

func (p *pinnedLate) Delete(ctx context.Context, key string) error {
	if p.pin != nil && strings.HasSuffix(key, "/manifest.json") {
		p.pin()
		p.pin, p.fails = nil, true
	}
	return p.Store.Delete(ctx, key)
}

func (p *pinnedLate) Stat(ctx context.Context, key string) (blob.Info, error) {
	if p.fails && strings.Contains(key, "/pins/") {
		p.fails = false
		return blob.Info{}, blob.ErrUnavailable
	}
	return p.Store.Stat(ctx, key)
}

// TestPinHoldsWhereTheStoreFails: a checkpoint that is pinned while it is pruned stays.
func TestPinHoldsWhereTheStoreFails(t *testing.T) {
	s := memblob.New()
	want := save(t, s, 1, state(1))
	save(t, s, 2, state(2))
	late := &pinnedLate{Store: s, pin: func() {
		if err := checkpoint.Pin(t.Context(), s, "runs/r/ckpt", 1, "good"); err != nil {
			t.Error(err)
		}
	}}
	none := func(int) bool { return false }
	if err := checkpoint.Prune(t.Context(), late, "runs", "runs/r/ckpt", none); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	if err := checkpoint.Prune(t.Context(), late, "runs", "runs/r/ckpt", none); err != nil {
		t.Fatal(err)
	}
	if _, got, err := checkpoint.Load(t.Context(), s, want); err != nil || got.Counters.TotalUpdates != 1 {
		t.Errorf("the pinned checkpoint is gone: %v", err)
	}
}
