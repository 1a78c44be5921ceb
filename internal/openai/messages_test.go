package openai

import (
	"runtime"
	"strings"
	"testing"

	"temper/internal/chat/jinja"
)

// TestContentTextIsLinear joins the text of many parts, and copies no text for each of them.
func TestContentTextIsLinear(t *testing.T) {
	const parts, size = 20_000, 24
	part := `{"type":"text","text":"` + strings.Repeat("x", size) + `"}`
	v, err := jinja.Decode([]byte("[" + strings.Repeat(part+",", parts-1) + part + "]"))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, bad := contentText("content", v)
	runtime.ReadMemStats(&after)
	if bad != nil || text != strings.Repeat("x", parts*size) {
		t.Errorf("%d bytes of text, want %d: %v", len(text), parts*size, bad)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 20*parts*size {
		t.Errorf("%d bytes of memory for %d bytes of text", made, parts*size)
	}
}
