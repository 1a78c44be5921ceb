package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// TestClaimedSizeTakesNoMemory: a manifest and the header of a shard that claim 2^60 bytes,
// over some hundred, are a damaged checkpoint and not the end of the process.
func TestClaimedSizeTakesNoMemory(t *testing.T) {
	store := memblob.New()
	network := model.Config{VocabSize: 8, HiddenSize: 4, IntermediateSize: 4, NumHiddenLayers: 1, NumAttentionHeads: 1, NumKeyValueHeads: 1, HeadDim: 4,
		MaxPositionEmbeddings: 8, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: .02}
	weights, err := model.InitialTensors(network, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := checkpoint.Save(t.Context(), store, "runs/a/checkpoints", 1, checkpoint.State{Model: network, Weights: weights})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := blob.ReadKey(t.Context(), store, ref.Key)
	if err != nil {
		t.Fatal(err)
	}
	var shard blob.Info
	infos, err := store.List(t.Context(), "")
	for _, info := range infos {
		if !strings.HasPrefix(info.Key, "runs/a/checkpoints/") && shard.Size < info.Size {
			shard = info
		}
	}
	if err != nil || shard.Key == "" {
		t.Fatalf("no shard among %v (%v)", infos, err)
	}
	const huge = 1 << 60
	header := fmt.Sprintf("{\"a\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", huge/4, huge)
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if _, err := blob.PutBytes(t.Context(), store, shard.Key, file, blob.Always); err != nil {
		t.Fatal(err)
	}
	was, claimed := fmt.Sprintf("\"size\":%d", shard.Size), fmt.Sprintf("\"size\":%d", huge+len(file))
	text := strings.ReplaceAll(strings.ReplaceAll(string(manifest), "\"size\": ", "\"size\":"), was, claimed)
	if !strings.Contains(text, claimed) {
		t.Fatalf("the manifest names no shard of %d bytes:\n%s", shard.Size, manifest)
	}
	ref, err = blob.PutBytes(t.Context(), store, ref.Key, []byte(text), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := checkpoint.Load(t.Context(), store, ref); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}
