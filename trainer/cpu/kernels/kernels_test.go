package kernels_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/rl"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
)

// childFile is where a child process writes the digests of its results.
const childFile = "KERNELS_TEST_DIGESTS"

// machines stand for other CPUs: environments that take features away from this one.
var machines = map[string][]string{
	"this":                 nil,
	"without AVX-512":      {"GODEBUG=cpu.avx512f=off"},
	"backend's own switch": {"GOMLX_GO_SIMD_AVX512=0"},
	"vectors of 256":       {"GODEBUG=simd=+256"},
	"vectors of 128":       {"GODEBUG=cpu.avx512f=off,simd=+128"},
	"without VPCLMULQDQ":   {"GODEBUG=cpu.vpclmulqdq=off"},
	"one core, no AVX-512": {"GODEBUG=cpu.avx512f=off", "GOMAXPROCS=1"},
}

// families are the kernels that the graphs of training and sampling use, each with
// random shapes. Their names are keys of the digests.
var families = map[string]func(*sizes) (graphFn, []any){
	"product [in, out]":         func(s *sizes) (graphFn, []any) { return product(s, 1, dtypes.Float32) },
	"product [out, in]":         func(s *sizes) (graphFn, []any) { return product(s, 0, dtypes.Float32) },
	"product [in, out] in bf16": func(s *sizes) (graphFn, []any) { return product(s, 1, dtypes.BFloat16) },
	"products of a batch":       batched,
	"sums of rows":              func(s *sizes) (graphFn, []any) { return reduced(s, -1) },
	"sums of columns":           func(s *sizes) (graphFn, []any) { return reduced(s, 0) },
	"sum of all":                func(s *sizes) (graphFn, []any) { return reduced(s) },
	"attention":                 attended,
	"elements":                  elements,
}

// graphFn builds a graph.
type graphFn = func([]*graph.Node) []*graph.Node

// sizes draws shapes and values.
type sizes struct {
	seed uint64
	n    int
}

func (s *sizes) unit() float64 {
	s.n++
	return float64(rl.Uniform(s.seed, s.n))
}

func (s *sizes) upTo(n int) int { return 1 + int(s.unit()*float64(n)) }

// oneOf picks a value.
func (s *sizes) oneOf(values ...int) int { return values[s.upTo(len(values))-1] }

// matrix has values of different magnitudes, so that the order of a sum matters.
func (s *sizes) matrix(dims ...int) *tensors.Tensor {
	size := 1
	for _, d := range dims {
		size *= d
	}
	data := make([]float32, size)
	for i := range data {
		data[i] = float32(math.Ldexp(s.unit()-0.5, s.upTo(5)))
	}
	return tensors.FromFlatDataAndDimensions(data, dims...)
}

// elements are functions of single elements, and a sum along rows that adds one by one.
func elements(s *sizes) (graphFn, []any) {
	a, b := s.upTo(20), s.upTo(100)
	return func(in []*graph.Node) []*graph.Node {
		x, y := in[0], in[1]
		positive := graph.AddScalar(graph.Square(x), 1e-6)
		return []*graph.Node{graph.Exp(x), graph.Sigmoid(x), graph.Log(positive), graph.Sqrt(positive), graph.Reciprocal(positive),
			graph.Mul(x, y), graph.Div(x, positive), graph.CumSum(graph.Exp(x), 1), graph.Tanh(y)}
	}, []any{s.matrix(a, b), s.matrix(a, b)}
}

// product multiplies matrices on both sides of the size at which the backend changes
// its kernel; axis is the one of the second factor's columns.
func product(s *sizes, axis int, dtype dtypes.DType) (graphFn, []any) {
	rows, depth, columns := s.upTo(130), s.oneOf(s.upTo(60), s.upTo(520), 128, 192, 256, 384), s.oneOf(s.upTo(80), 16*s.upTo(24))
	if s.upTo(6) == 1 {
		rows, depth, columns = 256+s.upTo(32), 256+s.upTo(96), 256
	}
	second := []int{depth, columns}
	if axis == 0 {
		second = []int{columns, depth}
	}
	return func(in []*graph.Node) []*graph.Node {
		x, y := graph.ConvertDType(in[0], dtype), graph.ConvertDType(in[1], dtype)
		dot := graph.Dot(x, y)
		if dtype != dtypes.Float32 {
			dot = dot.WithOutputDType(dtypes.Float32)
		}
		return []*graph.Node{dot.General([]int{1}, nil, []int{1 - axis}, nil)}
	}, []any{s.matrix(rows, depth), s.matrix(second...)}
}

// batched are the products of attention and of its gradient: over the last axes of both
// factors, and over the last of one and the first of the other.
func batched(s *sizes) (graphFn, []any) {
	outer, rows, columns, depth := s.upTo(8), s.upTo(160), s.upTo(160), s.oneOf(16, 24, 32, 64, 128, s.upTo(300))
	return func(in []*graph.Node) []*graph.Node {
		x, y := in[0], in[1]
		scores := graph.DotGeneral(x, []int{2}, []int{0}, y, []int{2}, []int{0}) // [outer, rows, columns]
		return []*graph.Node{scores, graph.DotGeneral(scores, []int{2}, []int{0}, y, []int{1}, []int{0})}
	}, []any{s.matrix(outer, rows, depth), s.matrix(outer, columns, depth)}
}

// reduced sums axes of one to three dimensions up; without axes it sums all.
func reduced(s *sizes, axes ...int) (graphFn, []any) {
	dims := []int{s.upTo(70), s.oneOf(s.upTo(20), s.upTo(700))}
	if s.upTo(3) == 1 {
		dims = append([]int{s.upTo(5)}, dims...)
	}
	return func(in []*graph.Node) []*graph.Node {
		if len(axes) == 0 {
			return []*graph.Node{graph.ReduceAllSum(in[0])}
		}
		return []*graph.Node{graph.ReduceSum(in[0], axes...)}
	}, []any{s.matrix(dims...)}
}

// attended is the fused operation, causal, with and without segments and limits.
func attended(s *sizes) (graphFn, []any) {
	rows, length, kv, groups, e := s.upTo(3), s.upTo(100), s.upTo(2), s.upTo(3), s.oneOf(16, 24, 32, 64, 128)
	masked := s.upTo(2) == 1
	return func(in []*graph.Node) []*graph.Node {
		options := &compute.ScaledDotProductAttentionConfig{Causal: true}
		if masked {
			g, dims := in[3].Graph(), shapes.Make(dtypes.Int32, rows, length, length)
			seen := graph.GreaterThan(in[3], graph.ScalarZero(g, dtypes.Float32))
			itself := graph.Equal(graph.Iota(g, dims, 1), graph.Iota(g, dims, 2))
			options.Mask = graph.InternalBackendOutputs(graph.LogicalOr(seen, itself))[0]
		}
		o, _ := graph.BackendFusedScaledDotProductAttention(in[0], in[1], in[2], compute.AttentionAxesLayoutBSHD, options)
		return []*graph.Node{o}
	}, []any{s.matrix(rows, length, kv*groups, e), s.matrix(rows, length, kv, e), s.matrix(rows, length, kv, e), s.matrix(rows, length, length)}
}

// digests computes each family with a choice of kernels.
func digests(t *testing.T, c kernels.Choice) map[string]string {
	t.Helper()
	backend, err := device.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	out := map[string]string{}
	for name, family := range families {
		h := sha256.New()
		for i := range 16 {
			fn, inputs := family(&sizes{seed: rl.Seed(1, name, uint64(i))})
			for _, r := range call(t, backend, c, fn, inputs) {
				tensors.MustConstFlatData(r, func(flat []float32) {
					if err := binary.Write(h, binary.LittleEndian, flat); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
		out[name] = fmt.Sprintf("%x", h.Sum(nil))
	}
	return out
}

// call builds and executes a graph with a choice of kernels.
func call(t *testing.T, backend compute.Backend, c kernels.Choice, fn graphFn, inputs []any) []*tensors.Tensor {
	t.Helper()
	defer kernels.Enter(c)()
	exec, err := graph.NewExec(backend, fn)
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Finalize()
	out, err := exec.Call(inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestChild is what the other tests run in processes of their own.
func TestChild(t *testing.T) {
	file := os.Getenv(childFile)
	if file == "" {
		t.Skip("only as a child")
	}
	var b strings.Builder
	for _, c := range []kernels.Choice{kernels.Native, kernels.Portable} {
		fmt.Fprintf(&b, "%s\tbits\t%s\n", c, kernels.Describe(c).Bits())
		for name, digest := range digests(t, c) {
			fmt.Fprintf(&b, "%s\t%s\t%s\n", c, name, digest)
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// child computes all families on another machine: choice, family, digest.
func child(t *testing.T, environ []string) map[kernels.Choice]map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "digests")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(append(os.Environ(), environ...), childFile+"="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", environ, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[kernels.Choice]map[string]string{kernels.Native: {}, kernels.Portable: {}}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		got[kernels.Choice(f[0])][f[1]] = f[2]
	}
	return got
}

// TestPortableOnEveryMachine: with portable kernels, each family has the same bits on
// all machines. Native ones equal them where there is no AVX-512.
func TestPortableOnEveryMachine(t *testing.T) {
	if err := kernels.Check(kernels.Portable); err != nil {
		t.Skip(err)
	}
	var want map[string]string
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		got := child(t, machines[name])
		portable, native := got[kernels.Portable], got[kernels.Native]
		if want == nil {
			want = portable
		}
		var apart []string
		for _, family := range slices.Sorted(maps.Keys(want)) {
			if portable[family] != want[family] {
				t.Errorf("%s: %s: portable kernels give other bits: %s, want %s", name, family, portable[family], want[family])
			}
			if native[family] != portable[family] && family != "bits" {
				apart = append(apart, family)
			}
		}
		wide := strings.Contains(native["bits"], "variant="+string(kernels.AVX512))
		t.Logf("%s (%s): native and portable kernels differ in %q", name, native["bits"], apart)
		if !wide && len(apart) > 0 {
			t.Errorf("%s has no AVX-512, and its native kernels differ from portable ones in %q", name, apart)
		}
		if wide && len(apart) == 0 {
			t.Errorf("%s: native kernels have the bits of portable ones, so the hooks lead nowhere", name)
		}
	}
}

// TestProductsOfHalves: a product of bfloat16 is the rounded sum of its terms, in small and
// in large kernels, for both layouts.
func TestProductsOfHalves(t *testing.T) {
	backend, err := device.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	rounded := func(x float64) float32 {
		u := math.Float32bits(float32(x))
		return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
	}
	half := func(n *graph.Node) *graph.Node { return graph.ConvertDType(n, dtypes.BFloat16) }
	for _, choice := range []kernels.Choice{kernels.Native, kernels.Portable} {
		if err := kernels.Check(choice); err != nil {
			t.Log(err)
			continue
		}
		for _, dims := range [][3]int{{9, 33, 17}, {402, 129, 259}} {
			m, k, n := dims[0], dims[1], dims[2]
			r := rand.New(rand.NewPCG(1, uint64(m)))
			numbers := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = rounded(r.Float64() - 0.5)
				}
				return x
			}
			x, y := numbers(m*k), numbers(k*n)
			for turned, yDims := range map[int][]int{0: {k, n}, 1: {n, k}} {
				got := call(t, backend, choice, func(in []*graph.Node) []*graph.Node {
					product := graph.DotGeneral(half(in[0]), []int{1}, nil, half(in[1]), []int{turned}, nil)
					return []*graph.Node{graph.ConvertDType(product, dtypes.Float32)}
				}, []any{tensors.FromFlatDataAndDimensions(x, m, k), tensors.FromFlatDataAndDimensions(y, yDims...)})
				wrong := 0
				tensors.MustConstFlatData(got[0], func(flat []float32) {
					for i, v := range flat {
						var want, size float64
						for j := range k {
							at := j*n + i%n
							if turned == 1 {
								at = i%n*k + j
							}
							term := float64(x[i/n*k+j]) * float64(y[at])
							want += term
							size += math.Abs(term)
						}
						if math.Abs(float64(v)-want) > math.Abs(want)/256+size*1e-6 {
							wrong++
						}
					}
				})
				if wrong > 0 {
					t.Errorf("%s kernels, [%d, %d] times [%d, %d], axis %d: %d of %d sums are wrong", choice, m, k, yDims[0], yDims[1], turned, wrong, m*n)
				}
			}
		}
	}
}

// TestHooksLeadToTheKernels: in one process, each family that the hooks lead to changes
// its bits with the choice, and changes them back.
func TestHooksLeadToTheKernels(t *testing.T) {
	if kernels.Describe(kernels.Native).Variant != kernels.AVX512 {
		t.Skip("one set of kernels on this machine")
	}
	before, portable, after := digests(t, kernels.Native), digests(t, kernels.Portable), digests(t, kernels.Native)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if before[name] != after[name] {
			t.Errorf("%s: native bits differ before and after portable ones were in force", name)
		}
		same := slices.Contains([]string{"elements", "sums of columns"}, name)
		if (portable[name] == before[name]) != same {
			t.Errorf("%s: portable bits equal native ones: %v, want %v", name, !same, same)
		}
	}
}
