package graphcache

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// The tests of this file are inside the package: a plugin that fails cannot be had.

// fakePlugin compiles a program to a handle, and may be unable to do more.
type fakePlugin struct {
	cannotSerialize, cannotLoad, cannotCompile bool
	compiled                                   int
}

var handleOf, failureOf byte

func (p *fakePlugin) compile() (handle, failure unsafe.Pointer) {
	p.compiled++
	if p.cannotCompile {
		return nil, unsafe.Pointer(&failureOf)
	}
	return unsafe.Pointer(&handleOf), nil
}

func (p *fakePlugin) load(program []byte) (unsafe.Pointer, error) {
	if p.cannotLoad || string(program) != "machine code" {
		return nil, errors.New("other version")
	}
	return unsafe.Pointer(&handleOf), nil
}

func (p *fakePlugin) serialize(unsafe.Pointer) ([]byte, error) {
	if p.cannotSerialize {
		return nil, errors.New("not implemented")
	}
	return []byte("machine code"), nil
}

func keeperIn(dir string, log *strings.Builder) *compileCache {
	k := newCompileCache("/dev/null")
	k.open = func() (*Store, error) { return OpenStore(dir, 1<<20) }
	k.log = slog.New(slog.NewTextHandler(log, nil))
	return k
}

// TestPluginsThatCannotKeep: what a plugin cannot do is said once, and never ends a
// compilation that it can.
func TestPluginsThatCannotKeep(t *testing.T) {
	s := source{format: "mlir", code: []byte("module @a {}"), device: "other"}
	for name, c := range map[string]struct {
		plugin   fakePlugin
		compiled int // of three compilations of one program
		says     string
		fails    bool
	}{
		"all":            {fakePlugin{}, 1, "", false},
		"no serialising": {fakePlugin{cannotSerialize: true}, 3, "not implemented", false},
		"no loading":     {fakePlugin{cannotLoad: true}, 3, "other version", false},
		"no compiling":   {fakePlugin{cannotCompile: true}, 3, "", true},
	} {
		var log strings.Builder
		k := keeperIn(filepath.Join(t.TempDir(), "graphs"), &log)
		for range 3 {
			handle, failure := k.take(s, &c.plugin)
			if (failure != nil) != c.fails || (handle == nil) != c.fails {
				t.Errorf("%s: handle %v, failure %v", name, handle, failure)
			}
		}
		if c.plugin.compiled != c.compiled || !strings.Contains(log.String(), c.says) || c.says == "" && log.Len() > 0 {
			t.Errorf("%s: compiled %d times, want %d; log %q", name, c.plugin.compiled, c.compiled, log.String())
		}
		if n := strings.Count(log.String(), "are not kept"); n > 1 {
			t.Errorf("%s: %d lines say the same", name, n)
		}
	}
}

// TestKeysTellPrograms apart by all that decides what the compiler makes.
func TestKeysTellPrograms(t *testing.T) {
	k := newCompileCache("/dev/null")
	base := source{format: "mlir", code: []byte("module @a { x }"), options: []byte("o"), device: "cpu"}
	same := base
	same.code = []byte("module @b#2 { x }")
	if k.keyOf(base) != k.keyOf(same) {
		t.Error("the name of a module decides")
	}
	for name, change := range map[string]func(*source){
		"code":    func(s *source) { s.code = []byte("module @a { y }") },
		"options": func(s *source) { s.options = []byte("p") },
		"format":  func(s *source) { s.format = "hlo" },
		"device":  func(s *source) { s.device = "gpu" },
		"a border": func(s *source) {
			s.code, s.options = []byte("module @a { x }o"), nil
		},
	} {
		other := base
		change(&other)
		if k.keyOf(base) == k.keyOf(other) {
			t.Errorf("%s does not decide", name)
		}
	}
	key := k.keyOf(base)
	t.Setenv("XLA_FLAGS", "--other")
	if k.keyOf(base) == key {
		t.Error("XLA's flags do not decide")
	}
	if newCompileCache("/proc/version").keyOf(base) == k.keyOf(base) {
		t.Error("the plugin does not decide")
	}
}

// TestStoreOfOthersIsNotUsed: programs are compiled where the folder cannot be trusted.
func TestStoreOfOthersIsNotUsed(t *testing.T) {
	var log strings.Builder
	k := keeperIn("/", &log) // open to others
	p := &fakePlugin{}
	for range 2 {
		if handle, failure := k.take(source{device: "other"}, p); handle == nil || failure != nil {
			t.Fatal("not compiled")
		}
	}
	if p.compiled != 2 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("compiled %d times, log %q", p.compiled, log.String())
	}
}

// TestUnreadablePluginKeepsNothing: its programs would have the keys of any other one.
func TestUnreadablePluginKeepsNothing(t *testing.T) {
	var log strings.Builder
	k := keeperIn(filepath.Join(t.TempDir(), "graphs"), &log)
	k.library = func() (string, error) { return "", errors.New("no such library") }
	p := &fakePlugin{}
	for range 2 {
		if handle, failure := k.take(source{device: "other"}, p); handle == nil || failure != nil {
			t.Fatal("not compiled")
		}
	}
	if p.compiled != 2 || strings.Count(log.String(), "no such library") != 1 {
		t.Errorf("compiled %d times, log %q", p.compiled, log.String())
	}
}

// TestDriversDecide: what another driver compiled is another program; the CPU's programs
// know nothing of drivers.
func TestDriversDecide(t *testing.T) {
	root := t.TempDir()
	if got := driversBelow(root); got != "" {
		t.Errorf("a machine without drivers has %q", got)
	}
	seen := map[string]bool{"": true}
	for _, file := range []struct{ name, text string }{
		{"sys/module/amdgpu/version", "6.14.14\n"}, {"sys/module/amdgpu/version", "6.16.6\n"},
		{"opt/rocm/.info/version", "7.1.0\n"}, {"proc/driver/nvidia/version", "NVRM version: 580.95\n"},
	} {
		path := filepath.Join(root, file.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := driversBelow(root)
		if seen[got] || !strings.Contains(got, strings.TrimSpace(file.text)) {
			t.Errorf("with %s %q: %q", file.name, file.text, got)
		}
		seen[got] = true
	}
	if got := hostOf("Host CPU"); got != cpuFeatures() {
		t.Errorf("the CPU's programs depend on %q", got)
	}
}

// TestFileOfFlags: XLA_FLAGS may name a file, and then its content decides.
func TestFileOfFlags(t *testing.T) {
	k, program := newCompileCache("/proc/version"), source{format: "mlir", code: []byte("module @a { x }"), device: "cpu"}
	file := filepath.Join(t.TempDir(), "flags")
	seen := map[Key]bool{}
	t.Setenv("XLA_FLAGS", file)
	for _, text := range []string{"", "--xla_cpu_enable_fast_math=false\n", "--xla_cpu_enable_fast_math=true\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		seen[k.keyOf(program)] = true
	}
	t.Setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true\n")
	if seen[k.keyOf(program)] = true; len(seen) != 3 {
		t.Errorf("%d keys of 3 contents, one of them given twice", len(seen))
	}
}
