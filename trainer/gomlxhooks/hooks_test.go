package gomlxhooks_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hook is a declaration of a module that a hook of this package depends on.
type hook struct {
	module, file string
	// name is a variable, function or type, or Type.field.
	name string
	// declaration is its type, without names of parameters and with single spaces. For a
	// variable that is initialized without a type it is the type of the literal.
	declaration string
}

const (
	attention = "func([]float32, []float32, []float32, []float32, int, int, int, int, int, []float32, []bool, int, []float32, int, []float32, int, int, int, int, float32, bool, int, int) bool"
	sums      = "func(*Buffer, *Buffer, int, int, dtypes.DType) bool"
	config    = "struct { TrailingMinB map[dtypes.DType]int; LeadingMinB map[dtypes.DType]int; AllMinN map[dtypes.DType]int }"
)

var hooks = []hook{
	{"compute", "internal/fastmath/exp.go", "Exp32", "func(float32) float32"},
	{"compute", "internal/gobackend/sdpa_arch.go", "sdpaFloat32ArchFn", "SDPAFloat32ArchFn"},
	{"compute", "internal/gobackend/sdpa_arch.go", "SDPAFloat32ArchFn", attention},
	{"compute", "internal/gobackend/fusedops/avx2/sdpa.go", "DispatchSDPAAVX2", attention},
	{"compute", "internal/gobackend/reduce_arch_trailing_sum.go", "reduceTrailingSumArchFn", "ReduceTrailingSumArchFn"},
	{"compute", "internal/gobackend/reduce_arch_trailing_sum.go", "ReduceTrailingSumArchFn", sums},
	{"compute", "internal/gobackend/reduce_arch_trailing_sum.go", "reduceTrailingSumArchPriority", "RegisterPriority"},
	{"compute", "internal/gobackend/reduce_arch_leading_sum.go", "reduceLeadingSumArchFn", "ReduceLeadingSumArchFn"},
	{"compute", "internal/gobackend/reduce_arch_leading_sum.go", "ReduceLeadingSumArchFn", sums},
	{"compute", "internal/gobackend/reduce_arch_leading_sum.go", "reduceLeadingSumArchPriority", "RegisterPriority"},
	{"compute", "internal/gobackend/binary_arch_trailing.go", "binaryTrailingArchFn", "BinaryTrailingArchFn"},
	{"compute", "internal/gobackend/binary_arch_trailing.go", "BinaryTrailingArchFn", "func(compute.OpType, bool, *Buffer, *Buffer, *Buffer, int, int, dtypes.DType) bool"},
	{"compute", "internal/gobackend/binary_arch_trailing.go", "binaryTrailingArchPriority", "RegisterPriority"},
	{"compute", "internal/gobackend/layernorm_arch_trailing.go", "layerNormTrailingArchFn", "LayerNormTrailingArchFn"},
	{"compute", "internal/gobackend/layernorm_arch_trailing.go", "LayerNormTrailingArchFn", "func(unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, int, int, float64, dtypes.DType) bool"},
	{"compute", "internal/gobackend/layernorm_arch_trailing.go", "layerNormTrailingArchPriority", "RegisterPriority"},
	{"compute", "internal/gobackend/exec.go", "RegisterPriority", "int"},
	{"compute", "internal/gobackend/dot/registration.go", "testRegisteredImplementations", "map[ImplementationKey]*ImplementationRegistration"},
	{"compute", "internal/gobackend/dot/registration.go", "ImplementationRegistration", "struct { name string; implFn any; priority gobackend.RegisterPriority }"},
	{"compute", "internal/gobackend/dot/registration.go", "FindRegisteredImplementation", "func(Layout, dtypes.DType, dtypes.DType) *ImplementationRegistration"},
	{"compute", "internal/gobackend/dot/layout.go", "Layout", "int"},
	{"compute", "internal/gobackend/ops/reduce_thresholds.go", "reduceThresholds", "ReduceThresholdsConfig"},
	{"compute", "internal/gobackend/ops/reduce_thresholds.go", "ReduceThresholdsConfig", config},
	{"compute", "internal/gobackend/ops/reduce_thresholds_amd64.go", "avx2ReduceThresholds", "ReduceThresholdsConfig"},
	{"compute", "internal/gobackend/ops/avx2/avx2.go", "registerAVX2", "func()"},
	{"compute", "internal/gobackend/fusedops/avx2/avx2.go", "registerAVX2", "func()"},
	{"compute", "internal/gobackend/dot/matmul/avx2/avx2.go", "RegisterAVX2ForTests", "func()"},
	{"compute", "internal/gobackend/dot/matmul/nosimd.go", "RegisterNoSIMDForTests", "func()"},
	{"compute", "internal/gobackend/dot/matmul/avx2/gen_small_bf16.go", "avx2SmallBFloat16Parallel", "func(*gobackend.Backend, dot.Layout, []bfloat16.BFloat16, []bfloat16.BFloat16, int, int, int, int, []float32)"},
	{"compute", "internal/gobackend/buffers.go", "Buffer.isUserFed", "bool"},
	{"compute", "internal/gobackend/gobackend.go", "Backend.Workers", "*workerspool.Pool"},
	{"gomlx", "core/graph/graph.go", "Graph.builder", "compute.Builder"},
	{"gomlx", "core/graph/graph.go", "Graph.executable", "compute.Executable"},
	{"gomlx", "core/graph/node.go", "Node.outputOps", "[]compute.Value"},
	{"gomlx", "core/graph/node.go", "Node.inputs", "NodeInputs"},
	{"go-xla", "compute/xla/builder.go", "Builder.mainFn", "*Function"},
	{"go-xla", "compute/xla/builder.go", "Builder.cacheReductions", "map[reductionKey]*stablehlo.Function"},
	{"go-xla", "compute/xla/builder.go", "Node.value", "*stablehlo.Value"},
	{"go-xla", "compute/xla/function.go", "Function.fn", "*stablehlo.Function"},
	{"go-xla", "compute/xla/executable.go", "Executable.exec", "*pjrt.LoadedExecutable"},
	{"go-xla", "compute/xla/backend.go", "Backend.client", "*pjrt.Client"},
	{"go-xla", "pjrt/clients.go", "Client.client", "*clientC"},
	{"go-xla", "pjrt/clients.go", "clientC.c", "*C.PJRT_Client"},
	{"go-xla", "pjrt/plugins.go", "Plugin.api", "*C.PJRT_Api"},
}

// TestHooks compares each declaration that a hook depends on with the source of the module
// in go.mod. It needs no device and holds for every build tag.
func TestHooks(t *testing.T) {
	dirs := map[string]string{}
	for _, h := range hooks {
		t.Run(h.module+"/"+filepath.Dir(h.file)+"."+h.name, func(t *testing.T) {
			if dirs[h.module] == "" {
				dirs[h.module] = list(t, h.module, "{{.Dir}}")
			}
			got, err := declaration(filepath.Join(dirs[h.module], h.file), h.name)
			if err != nil {
				t.Fatalf("%s of %s: %v: the hooks of trainer/gomlxhooks that depend on it need another way", h.name, h.module, err)
			}
			if got != h.declaration {
				t.Errorf("%s in %s of %s is %q, want %q: change the hook in trainer/gomlxhooks", h.name, h.file, h.module, got, h.declaration)
			}
		})
	}
}

// TestVersionsAreNamed: comments name the versions in go.mod, so an upgrade looks at each
// hook.
func TestVersionsAreNamed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(compute|gomlx|go-xla)[\s/]+(v\d+\.\d+\.\d+)`).FindAllStringSubmatch(string(text), -1) {
			named[m[1]+" "+m[2]] = true
		}
	}
	for _, module := range []string{"compute", "gomlx", "go-xla"} {
		want := module + " " + list(t, module, "{{.Version}}")
		if !named[want] {
			t.Errorf("go.mod has %s, and no comment of this package names it", want)
		}
		delete(named, want)
	}
	for old := range named {
		t.Errorf("a comment names %s, which is not in go.mod: try the hook with the version there", old)
	}
}

// list asks the go command about a module of GoMLX.
func list(t *testing.T, module, format string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, "github.com/gomlx/"+module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// declaration returns the type of a name in a Go file.
func declaration(file, name string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	name, field, _ := strings.Cut(name, ".")
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == name {
				return text(d.Type), nil
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if found := typeOf(spec, name); found != nil {
					return fieldText(found, field)
				}
			}
		}
	}
	return "", os.ErrNotExist
}

// typeOf returns the type that a declaration gives a name, nil when it declares others.
func typeOf(spec ast.Spec, name string) ast.Expr {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.Name == name {
			return spec.Type
		}
	case *ast.ValueSpec:
		for i, id := range spec.Names {
			if id.Name != name {
				continue
			}
			if spec.Type != nil {
				return spec.Type
			}
			if literal, ok := spec.Values[i].(*ast.CompositeLit); ok {
				return literal.Type
			}
		}
	}
	return nil
}

// fieldText prints a type, or that of its field.
func fieldText(t ast.Expr, field string) (string, error) {
	if field == "" {
		return text(t), nil
	}
	if s, ok := t.(*ast.StructType); ok {
		for _, f := range s.Fields.List {
			for _, id := range f.Names {
				if id.Name == field {
					return text(f.Type), nil
				}
			}
		}
	}
	return "", os.ErrNotExist
}

// text prints a type: functions without the names of their parameters, structs on one line.
func text(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.FuncType:
		out := "func(" + strings.Join(types(t.Params), ", ") + ")"
		if results := types(t.Results); len(results) > 0 {
			out += " " + strings.Join(results, ", ")
		}
		return out
	case *ast.StructType:
		var fields []string
		for _, f := range t.Fields.List {
			for _, id := range f.Names {
				fields = append(fields, id.Name+" "+text(f.Type))
			}
		}
		return "struct { " + strings.Join(fields, "; ") + " }"
	}
	var b strings.Builder
	_ = printer.Fprint(&b, token.NewFileSet(), t) // a Builder does not fail
	return b.String()
}

// types prints the types of parameters, one for each name.
func types(fields *ast.FieldList) []string {
	var out []string
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		for range max(len(f.Names), 1) {
			out = append(out, text(f.Type))
		}
	}
	return out
}
