package archtest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"testing"
)

func TestOnlyTheirMakersBuild(t *testing.T) {
	root := "../.."
	used := map[string]int{}
	err := eachSource(root, func(rel, name string) error {
		calls, err := madeIn(name, nil)
		for _, m := range calls {
			used[m.pkg]++
			if pkg := path.Dir(filepath.ToSlash(rel)); !matchesAny(m.only, pkg) {
				t.Errorf("%s uses %s.%s: %s", rel, m.pkg, m.name, m.reason)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range makers {
		if used[m.pkg] == 0 {
			t.Errorf("nobody uses %s.%s: the rule guards nothing", m.pkg, m.name)
		}
	}
}

// madeIn lists the makers that a file names; src is its text, or nil to read it.
func madeIn(name string, src any) ([]maker, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		return nil, err
	}
	local := map[string]string{} // path by the name in this file
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		as := path.Base(imported)
		if spec.Name != nil {
			as = spec.Name.Name
		}
		local[as] = imported
	}
	var out []maker
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil {
				for _, m := range makers {
					if local[x.Name] == m.pkg && sel.Sel.Name == m.name {
						out = append(out, m)
					}
				}
			}
		}
		return true
	})
	return out, nil
}

func TestMakersAreSeen(t *testing.T) {
	for src, want := range map[string]int{
		`package a; import "temper/trainer"; var x, err = trainer.New(trainer.Config{})`: 1,
		`package a; import tr "temper/trainer"; var f = tr.New`:                          1,
		`package a; import "temper/trainer/engine"; var x = engine.Config{}`:             0,
		`package a; import "other/engine"; var x = engine.New()`:                         0,
	} {
		if got, err := madeIn("a.go", src); err != nil || len(got) != want {
			t.Errorf("%s: %d makers (%v), want %d", src, len(got), fmt.Sprint(err), want)
		}
	}
}
