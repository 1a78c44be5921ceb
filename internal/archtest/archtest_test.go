package archtest_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "temper/"

// edge is one import of one file.
type edge struct {
	pkg    string // of the file, below the module root
	file   string
	path   string
	inTest bool
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	edges, found, err := scan("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 || len(edges) < 50 {
		t.Fatalf("scan found %d packages and %d imports: it looks at the wrong folder", len(found), len(edges))
	}
	for _, problem := range check(edges, found, packages, homes) {
		t.Error(problem)
	}
}

// scan reads the import declarations of every Go file of the module under root.
func scan(root string) (edges []edge, found []string, err error) {
	files := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, name, d.Name())
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(files, name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		pkg := path.Dir(rel)
		if !slices.Contains(found, pkg) {
			found = append(found, pkg)
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			edges = append(edges, edge{pkg, rel, imported, strings.HasSuffix(rel, "_test.go")})
		}
		return nil
	})
	return edges, found, err
}

// eachSource calls visit for each Go file below root that is no test, with its path from
// root and its name.
func eachSource(root string, visit func(rel, name string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, name, d.Name())
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return visit(rel, name)
	})
}

// enter skips folders that the go command does not look into, and nested modules.
func enter(root, name, base string) error {
	if name == root {
		return nil
	}
	if base == "testdata" || base == "node_modules" || base[0] == '.' || base[0] == '_' {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// check returns one line for each violation of the tables.
func check(edges []edge, found []string, rows []row, homes []home) []string {
	var problems []string
	used := map[string]bool{}
	for _, pkg := range found {
		r, ok := place(pkg, rows)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s has no row in internal/archtest/table_test.go: add one with its layer", pkg))
		}
		used[r.pattern] = true
	}
	listed := map[string]bool{}
	for _, r := range rows {
		if !used[r.pattern] {
			problems = append(problems, fmt.Sprintf("row %q of internal/archtest/table_test.go matches no package: remove it", r.pattern))
		}
		if listed[r.pattern] {
			problems = append(problems, fmt.Sprintf("row %q stands twice in internal/archtest/table_test.go", r.pattern))
		}
		listed[r.pattern] = true
	}
	for _, e := range edges {
		if problem := e.violation(rows, homes); problem != "" {
			problems = append(problems, fmt.Sprintf("%s imports %s: %s", e.file, e.path, problem))
		}
	}
	return problems
}

// violation says which rule the import breaks, "" for none. Test files may look
// up and sideways, for real parts to test against, but not at foreign modules
// that their package must do without.
func (e edge) violation(rows []row, homes []home) string {
	from, ok := place(e.pkg, rows)
	if !ok {
		return "" // reported once, for the package
	}
	if h, ok := homeOf(e.path, homes); ok && (h.testsToo || !e.inTest) && !matchesAny(h.only, e.pkg) {
		return fmt.Sprintf("%s (only %s)", h.reason, orNobody(h.only))
	}
	if e.inTest {
		return ""
	}
	target, own := strings.CutPrefix(e.path, module)
	if !own {
		first, _, _ := strings.Cut(e.path, "/")
		if from.stdOnly && strings.Contains(first, ".") {
			return "standard library only: " + from.reason
		}
		return ""
	}
	if from.ours != nil && !matchesAny(from.ours, target) {
		return fmt.Sprintf("%s (only %s)", from.reason, orNobody(from.ours))
	}
	if to, ok := place(target, rows); ok && to.layer > from.layer {
		return fmt.Sprintf("layer %d must not import layer %d", from.layer, to.layer)
	}
	return ""
}

// place finds the row with the longest pattern that matches the package.
func place(pkg string, rows []row) (best row, ok bool) {
	for _, r := range rows {
		if matches(r.pattern, pkg) && (!ok || len(r.pattern) > len(best.pattern)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// homeOf finds the rule of exactly the import, or else the one with the longest
// path that covers it.
func homeOf(imported string, homes []home) (best home, ok bool) {
	for _, h := range homes {
		if h.path == imported {
			return h, true
		}
		covers := matches(h.path, imported) || strings.TrimSuffix(h.path, "/...") == imported
		if covers && (!ok || len(h.path) > len(best.path)) {
			best, ok = h, true
		}
	}
	return best, ok
}

// matches reports whether pkg is the pattern, or below it when it ends in "/...".
func matches(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg, prefix)
	}
	return pattern == pkg
}

// matchesAny also lets "x/..." stand for x itself: a subtree may use its root.
func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return matches(p, pkg) || strings.TrimSuffix(p, "/...") == pkg && p != pkg
	})
}

func orNobody(patterns []string) string {
	if len(patterns) == 0 {
		return "nobody"
	}
	return strings.Join(patterns, ", ")
}
