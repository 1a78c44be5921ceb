package archtest_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// hooksHome is the package that reaches into GoMLX behind its exported names.
const hooksHome = "trainer/gomlxhooks"

// pokes match source that links a name of another package, or reaches a private field.
var pokes = regexp.MustCompile(`(?m)^//go:linkname |\.UnsafeAddr\(|\breflect\.NewAt\(`)

// fieldByName matches reflection on a field. It is allowed outside the trainer.
var fieldByName = regexp.MustCompile(`\.FieldByName\(`)

func TestHooksIntoGoMLXStandInOnePackage(t *testing.T) {
	seen := false
	err := eachSource("../..", func(rel, name string) error {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		found := pokes.Find(text)
		if found == nil && matches("trainer/...", pkg) {
			found = fieldByName.Find(text)
		}
		switch {
		case pkg == hooksHome:
			seen = seen || found != nil
		case found != nil:
			t.Errorf("%s has %q: hooks into libraries stand in %s, each with a test", rel, found, hooksHome)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Errorf("%s has no hook: the test looks at the wrong folder", hooksHome)
	}
}
