package layout_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"temper/internal/dataset/layout"
)

// read reads a row by a layout.
func read(t *testing.T, name string, row map[string]any) (*layout.Item, error) {
	t.Helper()
	l, err := layout.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var o layout.Object
	if err := o.Parse(data); err != nil {
		t.Fatal(err)
	}
	var item layout.Item
	return &item, l.Read(&o, &item, layout.Options{})
}

func toolACE(system string) map[string]any {
	said := []map[string]string{{"from": "user", "value": "hi"}, {"from": "assistant", "value": "yo"}}
	return map[string]any{"system": system, "conversations": said}
}

// TestListOfFunctions is found behind brackets and objects that are no list of functions.
func TestListOfFunctions(t *testing.T) {
	const list = `[ {"name": "f"}, {"name": "g"}]`
	for system, tools := range map[string]int{
		"Here: " + list: 2, "Say [f(a=1), g()] or [{f}]. " + list: 2, `Like [{"name": "x"}, ...]. ` + list: 2, "[[1, 2], " + list + "]": 2,
		`As {"a": [1, ` + list: 2, "[[[[" + list: 2, list + ` and [{"name": "h"}]`: 2, "[1, 2]": -1, `[{"name": "f"}`: -1, `[{"name": "f`: -1, "[": -1, "": -1,
	} {
		item, err := read(t, "toolace", toolACE(system))
		if err != nil {
			item.Dialogue.Tools = make([]json.RawMessage, 0)
		}
		if got := len(item.Dialogue.Tools); err == nil != (tools > 0) || err == nil && got != tools {
			t.Errorf("%s: %d tools, want %d: %v", system, got, tools, err)
		}
	}
}

// TestCostOfHostileRows: a row 16 times as long costs some 16 times as much, not 256.
func TestCostOfHostileRows(t *testing.T) {
	repeated := func(text string) func(int) map[string]any {
		return func(n int) map[string]any { return toolACE(strings.Repeat(text, n)) }
	}
	for name, row := range map[string]func(n int) map[string]any{
		"lists": repeated("[1,"), "objects": repeated(`[{"a":`), "open texts": repeated(`[{"a`), "names": repeated(`[{"a":1`), "wrong": repeated("[{]"),
		"tools": func(n int) map[string]any {
			var list []string
			for i := range n / 2 {
				list = append(list, fmt.Sprintf(`{"name":"f%d"}`, i))
			}
			return toolACE("[" + strings.Join(list, ",") + "]")
		},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) time.Duration {
				r, best := row(n), time.Hour
				for range 3 {
					start := time.Now()
					_, _ = read(t, "toolace", r) // whether it is refused is not the point
					best = min(best, time.Since(start))
				}
				return best
			}
			// Another program may take the processor for some milliseconds.
			if small, large := cost(2000), cost(32000); large > 100*small+50*time.Millisecond {
				t.Errorf("2,000 took %v, and 32,000 %v", small, large)
			}
		})
	}
}
