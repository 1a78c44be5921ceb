package archtest_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxLines    = 170_000 // of the product: no tests, no tools
	maxFolders  = 30      // directly in internal/
	minLines    = 150     // of a package of one file
	maxRiddles  = 20      // comment lines with one of the phrases below
	minPackages = 60
)

// riddles are phrases that make a sentence be read twice.
var riddles = map[string]*regexp.Regexp{
	"is that of, are those of": regexp.MustCompile(`(?i)\b(is that of|are those of)\b`),
	"nobody, somebody":         regexp.MustCompile(`(?i)\b(nobody|somebody)\b`),
	"of its own":               regexp.MustCompile(`(?i)\bof its own\b`),
}

// vagueNames are names that tell nothing of what a package holds.
var vagueNames = []string{
	"common", "converse", "feed", "freeze", "handoff", "helpers", "lanes", "misc", "ondevice", "pass", "remake", "segment", "util", "utils", "value",
}

// house is what the module's own Go files add up to.
type house struct {
	lines    map[string]int // by package
	files    map[string]int // by package
	comments map[string]int // by phrase of riddles
}

func TestHouseStaysSmall(t *testing.T) {
	h, err := survey("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.lines) < minPackages {
		t.Fatalf("%d packages: the test looks at the wrong folder", len(h.lines))
	}
	for _, problem := range h.problems(smallPackages) {
		t.Error(problem)
	}
}

// survey reads every Go file below root that is no test.
func survey(root string) (house, error) {
	h := house{lines: map[string]int{}, files: map[string]int{}, comments: map[string]int{}}
	return h, eachSource(root, func(rel, name string) error {
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		h.lines[pkg] += bytes.Count(src, []byte("\n"))
		h.files[pkg]++
		if !ast.IsGenerated(file) {
			h.countRiddles(file)
		}
		return nil
	})
}

func (h house) countRiddles(file *ast.File) {
	for _, group := range file.Comments {
		for _, c := range group.List {
			for line := range strings.Lines(c.Text) {
				for phrase, re := range riddles {
					if re.MatchString(line) {
						h.comments[phrase]++
					}
				}
			}
		}
	}
}

// problems returns one line for each limit that is broken, and for each reason that
// no package needs.
func (h house) problems(reasons map[string]string) []string {
	var out []string
	total, folders := 0, map[string]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(h.lines)) {
		total += h.lines[pkg]
		if rest, ok := strings.CutPrefix(pkg, "internal/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			folders[first] = true
		}
		if slices.Contains(vagueNames, path.Base(pkg)) {
			out = append(out, fmt.Sprintf("%s: the name tells nothing: name the package by a noun of the field", pkg))
		}
		small := h.files[pkg] == 1 && h.lines[pkg] < minLines
		if small && reasons[pkg] == "" {
			out = append(out, fmt.Sprintf("%s is one file of %d lines: merge it, or say in internal/archtest/limits_test.go which cycle that would make", pkg, h.lines[pkg]))
		}
		if !small && reasons[pkg] != "" {
			out = append(out, fmt.Sprintf("%s needs no exception: remove it from internal/archtest/limits_test.go", pkg))
		}
	}
	for pkg := range reasons {
		if h.files[pkg] == 0 {
			out = append(out, fmt.Sprintf("%s is gone: remove it from internal/archtest/limits_test.go", pkg))
		}
	}
	if total > maxLines {
		out = append(out, fmt.Sprintf("the product has %d lines, at most %d: remove what a new part replaces", total, maxLines))
	}
	if len(folders) > maxFolders {
		out = append(out, fmt.Sprintf("internal/ has %d folders, at most %d", len(folders), maxFolders))
	}
	for _, phrase := range slices.Sorted(maps.Keys(h.comments)) {
		if n := h.comments[phrase]; n >= maxRiddles {
			out = append(out, fmt.Sprintf("%d comment lines say %q, fewer than %d: write subject, verb, object", n, phrase, maxRiddles))
		}
	}
	return out
}

func TestHouseIsSurveyed(t *testing.T) {
	h := house{
		lines:    map[string]int{"internal/a": 10, "internal/b/util": 200, "internal/c": 20, "trainer": maxLines},
		files:    map[string]int{"internal/a": 1, "internal/b/util": 1, "internal/c": 1, "trainer": 9},
		comments: map[string]int{"nobody, somebody": maxRiddles},
	}
	got := h.problems(map[string]string{"internal/c": "a cycle", "trainer": "none", "gone": "none"})
	want := []string{"internal/a is one file", "internal/b/util: the name", "trainer needs no exception", "gone is gone", "the product has", `20 comment lines say "nobody, somebody"`}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("problems %q, want %q", got, want)
	}
}
