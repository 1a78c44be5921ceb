package model_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"
	"github.com/google/go-cmp/cmp"

	"temper/internal/rl"
	"temper/trainer/model"
)

// small is a network in which every dimension differs from every other.
func small(tied bool) model.Config {
	return model.Config{
		VocabSize: 23, HiddenSize: 20, IntermediateSize: 28, NumHiddenLayers: 3, NumAttentionHeads: 6,
		NumKeyValueHeads: 2, HeadDim: 8, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6,
		TieWordEmbeddings: tied, InitializerRange: 0.4,
	}
}

// weightsOf returns start weights whose norms are not all ones, so that a norm
// weight in the wrong place shows.
func weightsOf(t *testing.T, cfg model.Config) []model.Tensor {
	t.Helper()
	ts, err := model.InitialTensors(cfg, 5)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ts {
		if len(ts[i].Shape) == 1 {
			draw := rl.Rand(uint64(i))
			for k := range ts[i].Data {
				ts[i].Data[k] = 0.5 + draw.Float32()
			}
		}
	}
	return ts
}

// storeOf imports weights into a new store.
func storeOf(t *testing.T, cfg model.Config, ts []model.Tensor) *ml.Store {
	t.Helper()
	store := ml.NewStore()
	if err := model.Import(nil, store, cfg, model.ByName(ts)); err != nil {
		t.Fatal(err)
	}
	return store
}

// backend is the pure Go backend.
func backend(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// forward returns the logits [B*T][V] of a batch; positions and segments may be nil.
func forward(t *testing.T, store *ml.Store, cfg model.Config, opts model.Options, tokens, positions, segments [][]int32) [][]float64 {
	t.Helper()
	exec, err := ml.NewExec(backend(t), store, func(s *ml.Scope, in []*graph.Node) *graph.Node {
		inputs := model.Inputs{Tokens: in[0]}
		if positions != nil {
			inputs.Positions = in[1]
		}
		if segments != nil {
			inputs.Segments = in[len(in)-1]
		}
		return head(opts)(s, cfg, model.Forward(s, cfg, inputs, opts))
	})
	if err != nil {
		t.Fatal(err)
	}
	args := []any{tokens}
	for _, extra := range [][][]int32{positions, segments} {
		if extra != nil {
			args = append(args, extra)
		}
	}
	out, err := exec.Call(args...)
	if err != nil {
		t.Fatal(err)
	}
	return rows(t, out[0], cfg.VocabSize)
}

// head maps hidden states to logits.
func head(opts model.Options) func(*ml.Scope, model.Config, *graph.Node) *graph.Node {
	if opts.LikeDecode {
		return model.LogitsLikeDecode
	}
	return model.Logits
}

// rows splits a tensor into rows of the given width.
func rows(t *testing.T, x *tensors.Tensor, width int) [][]float64 {
	t.Helper()
	flat, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for row := range slices.Chunk(flat, width) {
		r := make([]float64, width)
		for i, v := range row {
			r[i] = float64(v)
		}
		out = append(out, r)
	}
	return out
}

// near reports rows that differ by more than tolerance in any element.
func near(t *testing.T, what string, got, want [][]float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	worst := 0.0
	for i := range want {
		for k := range want[i] {
			if d := math.Abs(got[i][k] - want[i][k]); d > worst || math.IsNaN(d) {
				worst = d
			}
		}
	}
	if !(worst <= tolerance) {
		t.Errorf("%s: off by %g, want at most %g", what, worst, tolerance)
	}
}

// sentence draws n tokens.
func sentence(seed uint64, n int) []int32 {
	draw := rl.Rand(seed)
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(draw.IntN(23))
	}
	return s
}

// The logits are of order 1 to 10; float32 against float64 leaves 1e-5 or so.
const rounding = 1e-4

// ways are those in which the same function is computed.
var ways = []model.Options{{}, {LikeDecode: true}, {Remat: true}, {Remat: true, LikeDecode: true}, {PlainSoftmax: true}, {LikeDecode: true, PlainSoftmax: true}}

func TestForwardEqualsReference(t *testing.T) {
	for i, opts := range ways {
		cfg := small(i%2 == 0)
		ts := weightsOf(t, cfg)
		tokens := [][]int32{sentence(1, 13), sentence(2, 13)}
		got := forward(t, storeOf(t, cfg, ts), cfg, opts, tokens, nil, nil)
		ref := newReference(cfg, ts)
		near(t, fmt.Sprintf("forward with %+v", opts), got, append(ref.logits(tokens[0]), ref.logits(tokens[1])...), rounding)
	}
}

func TestPackedAndPaddedEqualAlone(t *testing.T) {
	for _, opts := range ways {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) { packedAndPaddedEqualAlone(t, opts) })
	}
}

func packedAndPaddedEqualAlone(t *testing.T, opts model.Options) {
	cfg := small(true)
	ts := weightsOf(t, cfg)
	ref := newReference(cfg, ts)
	a, b, c := sentence(1, 5), sentence(2, 8), sentence(3, 6)
	pad := []int32{9, 9, 9, 9, 9, 9, 9}
	tokens := [][]int32{slices.Concat(a, b), slices.Concat(c, pad)}
	segments := [][]int32{
		slices.Concat(slices.Repeat([]int32{1}, 5), slices.Repeat([]int32{2}, 8)),
		slices.Concat(slices.Repeat([]int32{1}, 6), slices.Repeat([]int32{0}, 7)),
	}
	positions := [][]int32{{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0}}
	got := forward(t, storeOf(t, cfg, ts), cfg, opts, tokens, positions, segments)
	near(t, "first of a packed row", got[:5], ref.logits(a), rounding)
	near(t, "second of a packed row", got[5:13], ref.logits(b), rounding)
	near(t, "padded row", got[13:19], ref.logits(c), rounding)
	for _, row := range got[19:] {
		if slices.ContainsFunc(row, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
			t.Fatal("padding yields logits that are not finite; they would poison the gradient")
		}
	}
	tokens[1] = slices.Concat(c, []int32{0, 1, 2, 3, 4, 5, 6})
	other := forward(t, storeOf(t, cfg, ts), cfg, opts, tokens, positions, segments)
	near(t, "other padding", other[:19], got[:19], 0)
}

// TestPositionsAreUsed spreads the positions out: rotary attention sees only
// distances, so shifted positions would change nothing.
func TestPositionsAreUsed(t *testing.T) {
	cfg := small(true)
	ts := weightsOf(t, cfg)
	ref := newReference(cfg, ts)
	ref.stride = 2
	tokens := sentence(1, 6)
	got := forward(t, storeOf(t, cfg, ts), cfg, model.Options{},
		[][]int32{slices.Concat(tokens, tokens)}, [][]int32{{0, 2, 4, 6, 8, 10, 0, 0, 0, 0, 0, 0}}, nil)
	near(t, "every other position", got[:6], ref.logits(tokens), rounding)
}

// gradient returns the mean negative log-likelihood of each next token and its
// gradient for the named weights.
func gradient(t *testing.T, cfg model.Config, opts model.Options, ts []model.Tensor, names []string) (float64, [][]float64) {
	t.Helper()
	exec, err := ml.NewExec(backend(t), storeOf(t, cfg, ts), func(s *ml.Scope, tokens *graph.Node) []*graph.Node {
		logits := head(opts)(s, cfg, model.Forward(s, cfg, model.Inputs{Tokens: tokens}, opts))
		logps := graph.LogSoftmax(graph.SliceAxis(logits, 1, graph.AxisRange(0, -1)), -1)
		next := graph.OneHot(graph.SliceAxis(tokens, 1, graph.AxisRangeToEnd(1)), cfg.VocabSize, logits.DType())
		loss := graph.Neg(graph.ReduceAllMean(graph.ReduceSum(graph.Mul(logps, next), -1)))
		var vars []*graph.Node
		for _, n := range names {
			vars = append(vars, s.Store().GetVariable(model.VariablePath(n)).NodeValue(tokens))
		}
		return append([]*graph.Node{loss}, graph.Gradient(loss, vars...)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call([][]int32{sentence(1, 12), sentence(2, 12)})
	if err != nil {
		t.Fatal(err)
	}
	var grads [][]float64
	for _, g := range out[1:] {
		grads = append(grads, rows(t, g, g.Size())[0])
	}
	return rows(t, out[0], 1)[0][0], grads
}

// referenceLoss is the loss of gradient by the reference.
func referenceLoss(cfg model.Config, ts []model.Tensor) float64 {
	ref, sum := newReference(cfg, ts), 0.0
	for _, tokens := range [][]int32{sentence(1, 12), sentence(2, 12)} {
		for i, logits := range ref.logits(tokens)[:11] {
			z := 0.0
			for _, v := range logits {
				z += math.Exp(v)
			}
			sum += math.Log(z) - logits[tokens[i+1]]
		}
	}
	return sum / 22
}

func TestGradientEqualsFiniteDifferences(t *testing.T) {
	cfg := small(true)
	ts := weightsOf(t, cfg)
	var names []string
	for _, spec := range cfg.Tensors() {
		names = append(names, spec.Name)
	}
	var grads [][][]float64
	for _, opts := range ways {
		loss, g := gradient(t, cfg, opts, ts, names)
		if want := referenceLoss(cfg, ts); math.Abs(loss-want) > rounding {
			t.Errorf("%+v: loss %v, reference %v", opts, loss, want)
		}
		grads = append(grads, g)
	}
	for i := range ts {
		k := (7 * i) % len(ts[i].Data)
		const h = 1.0 / 512 // exact in float32, small against the weights
		keep := ts[i].Data[k]
		ts[i].Data[k] = keep + h
		up := referenceLoss(cfg, ts)
		ts[i].Data[k] = keep - h
		down := referenceLoss(cfg, ts)
		ts[i].Data[k] = keep
		want := (up - down) / (2 * h)
		for w, opts := range ways {
			if d := math.Abs(grads[w][i][k] - want); d > 2e-4+1e-3*math.Abs(want) {
				t.Errorf("%+v: %s[%d]: gradient %v, finite difference %v", opts, names[i], k, grads[w][i][k], want)
			}
		}
	}
}

// TestRematChangesNothing: GoMLX answers with the queries where it makes fused
// attention again, so that a way of its own has to keep the answers.
func TestRematChangesNothing(t *testing.T) {
	cfg := small(false)
	ts := weightsOf(t, cfg)
	names := tensorNames(cfg)
	for _, like := range []bool{false, true} {
		loss, want := gradient(t, cfg, model.Options{LikeDecode: like}, ts, names)
		again, got := gradient(t, cfg, model.Options{LikeDecode: like, Remat: true}, ts, names)
		if loss != again {
			t.Errorf("like decoding %v: loss %v with remat, %v without", like, again, loss)
		}
		near(t, "gradients with remat", got, want, 1e-6)
	}
}

func TestImport(t *testing.T) {
	cfg := small(false)
	ts := weightsOf(t, cfg)
	store := storeOf(t, cfg, ts)
	for _, want := range ts {
		value, err := store.GetVariable(model.VariablePath(want.Name)).Value()
		if err != nil {
			t.Fatal(err)
		}
		got := model.Tensor{Name: want.Name, Shape: value.Shape().Dimensions, Data: tensors.MustCopyFlatData[float32](value)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the store after import (-want +got):\n%s", diff)
		}
	}
	broken := slices.Clone(ts)
	broken[1].Name = "elsewhere"
	broken[2].Shape = []int{20, 48}
	err := model.Import(nil, store, cfg, model.ByName(broken))
	for _, want := range []string{
		"tensor model.layers.0.input_layernorm.weight is missing",
		"tensor model.layers.0.self_attn.q_proj.weight: shape [20 48], want [48 20]",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("import: error %v, want %q in it", err, want)
		}
	}
}

func TestInitIsDeterministicAndPerTensor(t *testing.T) {
	a, _ := model.InitialTensors(small(false), 1)
	b, _ := model.InitialTensors(small(false), 1)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("same seed (-first +second):\n%s", diff)
	}
	tied, _ := model.InitialTensors(small(true), 1)
	if diff := cmp.Diff(a[:len(tied)], tied); diff != "" {
		t.Errorf("the head changes the draws of other tensors:\n%s", diff)
	}
	other, _ := model.InitialTensors(small(false), 2)
	if cmp.Equal(a[0].Data, other[0].Data) {
		t.Error("another seed gives the same weights")
	}
	sum := 0.0
	for _, v := range a[0].Data {
		sum += float64(v) * float64(v)
	}
	if std := math.Sqrt(sum / float64(len(a[0].Data))); math.Abs(std-0.4) > 0.04 {
		t.Errorf("standard deviation %v, want 0.4", std)
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	cfg := small(true)
	cfg.HeadDim, cfg.NumKeyValueHeads, cfg.RopeTheta, cfg.VocabSize = 7, 4, 0, -1
	err := cfg.Validate()
	for _, want := range []string{"head_dim: 7", "num_attention_heads: 6", "rope_theta: 0", "vocab_size: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if err := small(false).Validate(); err != nil {
		t.Errorf("valid configuration: %v", err)
	}
}
