package devicebench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Test is one of those that ran before the measurements.
type Test struct {
	Package string  `json:"package"`
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"` // pass, fail or skip
	Seconds float64 `json:"seconds"`
}

// String is the package's last part and the name.
func (t Test) String() string {
	if t.Name == "" {
		return t.Package
	}
	return t.Package + " " + t.Name
}

// ReadTests reads what `go test -json` wrote. A package that failed without a test, as one
// that does not build, is a test without a name.
func ReadTests(r io.Reader) ([]Test, error) {
	var out []Test
	failed := map[string]bool{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for line := 1; s.Scan(); line++ {
		if !strings.HasPrefix(s.Text(), "{") {
			continue // what a build prints
		}
		var e struct {
			Action, Package, Test string
			Elapsed               float64
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		t := Test{Package: strings.TrimPrefix(e.Package, "temper/"), Name: e.Test, Outcome: e.Action, Seconds: e.Elapsed}
		switch {
		case t.Name != "":
			out = append(out, t)
			failed[t.Package] = failed[t.Package] || t.Outcome == "fail"
		case t.Outcome == "fail" && !failed[t.Package]:
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Test) int { return strings.Compare(a.Package, b.Package) })
	return out, s.Err()
}
