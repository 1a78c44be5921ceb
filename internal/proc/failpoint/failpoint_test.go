package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// first is a point that exists.
const first = Point("sampling/after-group")

func TestKillsAtItsTurnAndOnce(t *testing.T) {
	dir := t.TempDir()
	deaths := 0
	start := func() *table {
		tab, err := parse(string(first)+"=kill@3", dir)
		if err != nil {
			t.Fatal(err)
		}
		tab.die = func() { deaths++ }
		return tab
	}
	tab := start()
	for hit := 1; hit <= 5; hit++ {
		tab.hit(first)
		tab.hit("train/after-update") // not armed
		if want := min(1, hit/3); deaths != want {
			t.Fatalf("%d deaths after %d hits, want %d", deaths, hit, want)
		}
	}
	if !Reached(dir, first) || Reached(dir, "train/after-update") {
		t.Error("the marks do not tell which point was reached")
	}
	again := start()
	for range 5 {
		again.hit(first)
	}
	if deaths != 1 {
		t.Errorf("%d deaths: a service that was restarted dies again", deaths)
	}
}

func TestMistakesAreToldTogether(t *testing.T) {
	_, err := parse("nowhere/at-all=kill,"+string(first)+"=kill@0,"+string(first)+"=pause", "")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{EnvDir, `"nowhere/at-all"`, `"0"`, "want " + string(first) + "=kill"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %s:\n%v", want, err)
		}
	}
	if tab, err := parse("", ""); err != nil || len(tab.points) != 0 {
		t.Errorf("nothing armed: %v", err)
	}
}

// TestEveryPointIsHitInOnePlace: a name in the list without a call kills nobody,
// and a call without a name can never be armed.
func TestEveryPointIsHitInOnePlace(t *testing.T) {
	calls := map[Point]int{}
	files := token.NewFileSet()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), "failpoint.Hit(") {
			return err
		}
		file, err := parser.ParseFile(files, path, data, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isHit(call) {
				if literal, ok := call.Args[0].(*ast.BasicLit); ok {
					name, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					calls[Point(name)]++
				} else {
					t.Errorf("%s: the name of a point must be a literal", files.Position(call.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range Points() {
		if calls[name] != 1 {
			t.Errorf("%s has %d calls, want one", name, calls[name])
		}
	}
	for name := range calls {
		if _, ok := Points()[name]; !ok {
			t.Errorf("%s is not in the list", name)
		}
	}
}

func isHit(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Hit" || len(call.Args) != 1 {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "failpoint"
}

func BenchmarkHitWhenOff(b *testing.B) {
	for b.Loop() {
		Hit(first)
	}
}
