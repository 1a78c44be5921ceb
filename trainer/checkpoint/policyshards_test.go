package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// wide has tensors of which each is a shard of its own, and small ones.
func wide() model.Config {
	return model.Config{VocabSize: 4099, HiddenSize: 4096, IntermediateSize: 16, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 8, MaxPositionEmbeddings: 16, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
}

// sameWeights compares tensors in any order. cmp is slow on millions of numbers.
func sameWeights(a, b []model.Tensor) bool {
	find := model.ByName(b)
	return len(a) == len(b) && !slices.ContainsFunc(a, func(t model.Tensor) bool {
		o, ok := find(t.Name)
		return !ok || !slices.Equal(t.Shape, o.Shape) || !slices.Equal(t.Data, o.Data)
	})
}

// weightsOf gives every tensor of a model its place and a number.
func weightsOf(m model.Config, number float32) []model.Tensor {
	var out []model.Tensor
	for i, spec := range m.Tensors() {
		t := model.Tensor{Name: spec.Name, Shape: spec.Shape, Data: make([]float32, spec.Size())}
		for j := range t.Data {
			t.Data[j] = number + float32(i+j&1023)
		}
		out = append(out, t)
	}
	return out
}

func publishShards(t *testing.T, s blob.Store, prefix string, m model.Config, weights []model.Tensor, room checkpoint.ShardMemory) blob.Ref {
	t.Helper()
	ref, err := publish(t.Context(), s, prefix, checkpoint.Policy{Model: m, Weights: weights, Tokenizer: []byte("{}"), Form: checkpoint.Form{ShardFrom: 1, Memory: room}})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// countedPuts counts the bytes of shards that are stored.
type countedPuts struct {
	blob.Store
	mu    sync.Mutex
	bytes int64
}

func (c *countedPuts) PutHashed(ctx context.Context, want blob.Ref, r io.Reader) error {
	c.mu.Lock()
	c.bytes += want.Size
	c.mu.Unlock()
	_, err := c.Put(ctx, want.Key, r, blob.Always)
	return err
}

func TestShardedPolicyStoresWhatChanged(t *testing.T) {
	s := &countedPuts{Store: memblob.New()}
	weights := weightsOf(wide(), 1)
	ref := publishShards(t, s, "runs/r/policies/v000001", wide(), weights, nil)
	whole := s.bytes
	p, err := checkpoint.LoadWeights(t.Context(), s, ref)
	if err != nil {
		t.Fatal(err)
	}
	if !sameWeights(weights, p.Weights) {
		t.Error("the loaded weights differ from those that were published")
	}
	// The next one changes all but the embedding, as training adapters does.
	for i := range weights {
		if len(weights[i].Data) < 1<<20 {
			weights[i].Data[0]++
		}
	}
	s.bytes = 0
	next := publishShards(t, s, "runs/r/policies/v000002", wide(), weights, nil)
	if s.bytes == 0 || s.bytes > whole/20 {
		t.Errorf("the second policy stored %d bytes of shards, the first one %d", s.bytes, whole)
	}
	if p, err = checkpoint.LoadWeights(t.Context(), s, next); err != nil || !sameWeights(weights, p.Weights) {
		t.Errorf("the second policy has other weights, or %v", err)
	}
	// A checkpoint of these weights stores none of them again.
	s.bytes = 0
	state := checkpoint.State{Model: wide(), Weights: weights}
	if _, err := checkpoint.Save(t.Context(), s, "runs/r/checkpoints", 2, state); err != nil || s.bytes != 0 {
		t.Errorf("the checkpoint stored %d bytes, %v", s.bytes, err)
	}
}

// room is memory in this process.
type room struct {
	shards [][]byte
	kept   blob.Ref
	full   bool
}

func (r *room) Take(sizes []int64) ([][]byte, func(blob.Ref, []string), func(), error) {
	if r.full {
		return nil, nil, nil, errors.New("no room")
	}
	for _, n := range sizes {
		memory := make([]float32, (n+3)/4)
		r.shards = append(r.shards, unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), n))
	}
	return r.shards, func(ref blob.Ref, _ []string) { r.kept = ref }, func() { r.shards = nil }, nil
}

func TestRoomHoldsWhatIsStored(t *testing.T) {
	weights := weightsOf(wide(), 2)
	plain, s, r := memblob.New(), memblob.New(), &room{}
	want := publishShards(t, plain, "policies/1", wide(), weights, nil)
	ref := publishShards(t, s, "policies/1", wide(), weights, r)
	if ref != want || r.kept != want {
		t.Fatalf("from room the policy is %v, kept as %v, want %v", ref, r.kept, want)
	}
	shards, err := checkpoint.PolicyShards(t.Context(), s, ref)
	if err != nil || len(shards) < 2 {
		t.Fatalf("%d shards, %v", len(shards), err)
	}
	for i, sh := range shards {
		stored, err := blob.ReadRef(t.Context(), s, sh.Ref)
		if err != nil || !bytes.Equal(stored, r.shards[i]) {
			t.Fatalf("shard %d differs from its room, %v", i, err)
		}
		if _, err := sh.View(t.Context(), r.shards[i], false); err != nil {
			t.Error(err)
		}
		r.shards[i][len(r.shards[i])-1] ^= 1
		if _, err := sh.View(t.Context(), r.shards[i], false); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("a changed byte gives %v", err)
		}
	}
	if full := publishShards(t, memblob.New(), "policies/1", wide(), weights, &room{full: true}); full != want {
		t.Errorf("without room the policy is %v, want %v", full, want)
	}
}

func TestDamagedShardIsNamed(t *testing.T) {
	s := memblob.New()
	ref := publishShards(t, s, "policies/1", network(), randomTensors(1), nil)
	shards, err := checkpoint.PolicyShards(t.Context(), s, ref)
	if err != nil {
		t.Fatal(err)
	}
	shard := shards[0].Ref
	whole, err := blob.ReadRef(t.Context(), s, shard)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want error) {
		t.Helper()
		_, err := checkpoint.LoadWeights(t.Context(), s, ref)
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", what, err, want)
		}
		if named, ok := blob.DamagedRef(err); !ok || named != shard || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v names %v, want %v in one line", what, err, named, shard)
		}
	}
	wrong := bytes.Clone(whole)
	wrong[len(wrong)-1] ^= 1
	for what, data := range map[string][]byte{"other bytes": wrong, "short": whole[:len(whole)-4], "long": append(bytes.Clone(whole), 0)} {
		if _, err := blob.PutBytes(t.Context(), s, shard.Key, data, blob.Always); err != nil {
			t.Fatal(err)
		}
		check(what, checkpoint.ErrCorrupt)
		found, err := checkpoint.Verify(t.Context(), s, "policies")
		if err != nil || found.Policies != 1 || len(found.Damaged) != 1 || found.Damaged[0].Key != shard.Key {
			t.Errorf("%s: verification found %+v, %v", what, found, err)
		}
	}
	if err := s.Delete(t.Context(), shard.Key); err != nil {
		t.Fatal(err)
	}
	check("missing", blob.ErrNotExist)
}

// TestReleaseSparesWhatIsNamed: deleting a policy takes its own shards and no other's.
func TestReleaseSparesWhatIsNamed(t *testing.T) {
	s := memblob.New()
	weights := weightsOf(wide(), 3)
	publishShards(t, s, "runs/r/policies/v000001", wide(), weights, nil)
	weights[len(weights)-1].Data[0]++
	kept := publishShards(t, s, "runs/r/policies/v000002", wide(), weights, nil)
	before := len(keys(t, s, "cas/"))
	old, err := checkpoint.FolderShards(t.Context(), s, "runs/r/policies/v000001")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(t, s, "runs/r/policies/v000001/") {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.Release(t.Context(), s, "runs", old); err != nil {
		t.Fatal(err)
	}
	if n := len(keys(t, s, "cas/")); n != before-1 {
		t.Errorf("%d shards are left of %d, want one less", n, before)
	}
	if p, err := checkpoint.LoadWeights(t.Context(), s, kept); err != nil || !sameWeights(weights, p.Weights) {
		t.Errorf("the other policy has other weights, or %v", err)
	}
	// A copy in another run names the same shards, and outlives the first.
	copied, err := checkpoint.CopyPolicy(t.Context(), s, kept, "runs/other/start")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(t, s, "runs/r/") {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoint.Collect(t.Context(), s, "runs", checkpoint.CollectOptions{Grace: -1}); err != nil {
		t.Fatal(err)
	}
	if p, err := checkpoint.LoadWeights(t.Context(), s, copied); err != nil || !sameWeights(weights, p.Weights) {
		t.Errorf("the copy has other weights, or %v", err)
	}
	again, err := checkpoint.CopyPolicy(t.Context(), s, copied, "runs/other/start")
	if err != nil || again != copied {
		t.Errorf("copying again gives %v, %v", again, err)
	}
}

// TestPolicyKeepsItsForm: what a run has published as a file stays one, whatever a later
// program would make of it.
func TestPolicyKeepsItsForm(t *testing.T) {
	s := memblob.New()
	p := checkpoint.Policy{Model: network(), Weights: randomTensors(1)}
	file, err := publish(t.Context(), s, "policies/1", p)
	if err != nil {
		t.Fatal(err)
	}
	p.Form.ShardFrom = 1
	again, err := publish(t.Context(), s, "policies/1", p)
	if err != nil || again != file {
		t.Errorf("published again it is %v, %v, want %v", again, err, file)
	}
	p.Form.ShardFrom = 1 << 20 // larger than it is
	if _, err := publish(t.Context(), s, "policies/2", p); err != nil {
		t.Fatal(err)
	}
	if sharded, ok, err := checkpoint.StoredInShards(t.Context(), s, "policies/2"); sharded || !ok || err != nil {
		t.Errorf("a small policy is in shards: %v, %v, %v", sharded, ok, err)
	}
}
