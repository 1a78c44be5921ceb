package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyTheModelNamesAFamily: what names an architecture of transformers outside
// trainer/model has a case for it, and another family would need one, too.
func TestOnlyTheModelNamesAFamily(t *testing.T) {
	inside := 0
	err := eachSource("../..", func(rel, name string) error {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text := ""
			switch n := n.(type) {
			case *ast.BasicLit:
				text = n.Value
			case *ast.Ident:
				text = n.Name
			}
			if !strings.Contains(text, "ForCausalLM") && text != "FamilyName" {
				return true
			}
			if strings.HasPrefix(filepath.ToSlash(rel), "trainer/model/") {
				inside++
			} else {
				t.Errorf("%s names a family in %s: only trainer/model does", rel, text)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if inside == 0 {
		t.Error("trainer/model names no family: the rule guards nothing")
	}
}
