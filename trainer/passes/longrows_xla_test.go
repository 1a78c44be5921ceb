//go:build xla

package passes

import (
	"flag"
	"math"
	"os"
	"os/exec"
	"testing"

	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model/graphs"
	"temper/trainer/xla/flash"
	"temper/trainer/xla/xlatest"
)

// TestXLALongRowsHoldNoScores: what an update needs besides weights grows with the length
// of its row, where a matrix of scores would grow with its square; the plan is near the
// compiler, on one device and on meshes. Rows of eight blocks need less than the scores of
// a single layer would.
func TestXLALongRowsHoldNoScores(t *testing.T) {
	backend := xlatest.Backend(t)
	if !alone(t) {
		return
	}
	devices := xlatest.Devices(t, backend)
	shortest := graphs.LongCompiledRow // of two blocks
	if xlatest.OnGPU(backend) {
		shortest = 2 * flash.MaxBlockGPU
	}
	network := outlineModel()
	network.MaxPositionEmbeddings = 4 * shortest
	for _, c := range []struct {
		mesh   device.Mesh
		remat  bool
		packed bool
	}{
		{mesh: device.Mesh{Data: 1, Model: 1}},
		{mesh: device.Mesh{Data: 1, Model: 1}, remat: true, packed: true},
		{mesh: device.Mesh{Data: 1, Model: 4}},
		{mesh: device.Mesh{Data: 2, Model: 2, FSDP: true}},
	} {
		if c.mesh.NumDevices() > devices {
			continue
		}
		var before int64
		for _, length := range []int{shortest, 4 * shortest} {
			m, err := CompileUpdate(Outline{Backend: backend, Model: network, Mesh: c.mesh, Rows: 1, Length: length, Remat: c.remat, Packed: c.packed})
			if err != nil {
				t.Fatal(err)
			}
			r, err := estimate.Estimate(estimate.Config{Model: network, Device: plannedDevice(backend), Mesh: c.mesh, Rows: 1, Length: length, Remat: c.remat, Packed: c.packed})
			if err != nil {
				t.Fatal(err)
			}
			off := float64(r.Program())/float64(m.Peak()) - 1
			t.Logf("%v, remat %v: %d tokens, %+v, planned %d, %+.1f %%", c.mesh, c.remat, length, m, r.Program(), 100*off)
			if math.Abs(off) > 0.15 {
				t.Errorf("%v, remat %v: %d tokens: the plan says %d bytes, the compiler %d", c.mesh, c.remat, length, r.Program(), m.Peak())
			}
			if before > 0 && m.Temporary > 9*before/2 {
				t.Errorf("%v, remat %v: four times the tokens need %d instead of %d bytes", c.mesh, c.remat, m.Temporary, before)
			}
			before = m.Temporary
		}
		scores := int64(4 * network.NumAttentionHeads / c.mesh.Model * 16 * shortest * shortest)
		if before >= scores {
			t.Errorf("%v, remat %v: %d bytes, as many as the scores of a layer, %d", c.mesh, c.remat, before, scores)
		}
	}
}

// TestXLAVocabularyInPieces: with the vocabulary in pieces, no value holds all scores of all
// tokens: an update needs less than one such value, and four times the vocabulary only
// what its weights and their gradients take.
func TestXLAVocabularyInPieces(t *testing.T) {
	backend := xlatest.Backend(t)
	if !alone(t) {
		return
	}
	const length, piece = 1024, 512
	workspace := xlatest.Workspace(backend)
	temporary := map[int]int64{}
	for _, vocab := range []int{8192, 32768} {
		cfg := outlineModel()
		cfg.VocabSize, cfg.NumHiddenLayers = vocab, 1
		for _, chunk := range []int{0, piece} {
			m, err := CompileUpdate(Outline{Backend: backend, Model: cfg, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: 1, Length: length, LogitsChunk: chunk})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("vocabulary %d by %d: %+v", vocab, chunk, m)
			m.Temporary -= workspace
			scores := int64(4 * length * vocab)
			if chunk == 0 && m.Temporary < scores {
				t.Errorf("vocabulary %d: %d bytes, less than whole scores take, %d: the test shows nothing", vocab, m.Temporary, scores)
			}
			if chunk > 0 {
				if m.Temporary >= scores {
					t.Errorf("vocabulary %d by %d: %d bytes, as much as whole scores, %d", vocab, chunk, m.Temporary, scores)
				}
				temporary[vocab] = m.Temporary
			}
		}
	}
	// In bfloat16, whose pieces are converted on their way.
	cfg := outlineModel()
	cfg.VocabSize, cfg.NumHiddenLayers = 32768, 1
	m, err := CompileUpdate(Outline{Backend: backend, Model: cfg, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: 1, Length: 4 * length, LogitsChunk: 32768 / 8, Compute: "bfloat16"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("eight pieces in bfloat16: %+v", m)
	if scores := int64(4 * 4 * length * 32768); m.Temporary-workspace >= scores {
		t.Errorf("eight pieces in bfloat16: %d bytes, as much as whole scores, %d", m.Temporary, scores)
	}
	tables := int64(4 * outlineModel().HiddenSize * (32768 - 8192)) // of so many more words
	if more := temporary[32768] - temporary[8192]; more > 4*tables {
		t.Errorf("more words need %d bytes more, %d tables of them", more, more/tables)
	}
}

// aloneKey marks the process of alone, and startFlags are those of XLA before a test changes
// them.
const aloneKey = "TEMPER_TEST_ALONE"

var startFlags = os.Getenv("XLA_FLAGS")

// alone is true in a process that has not opened the plugin with programs ordered by memory,
// as tests of short rows do: XLA reads its flags once. Remote it runs the test in such a
// process, with its outcome, and is false.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneKey) != "" {
		return true
	}
	args := []string{"-test.v", "-test.run", "^" + t.Name() + "$"}
	if f := flag.Lookup("device"); f != nil {
		args = append(args, "-device="+f.Value.String())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), aloneKey+"=1", "XLA_FLAGS="+startFlags)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}
