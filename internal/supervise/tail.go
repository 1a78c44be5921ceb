package supervise

import (
	"io"
	"os"
	"strings"
)

const (
	tailLines = 10
	tailBytes = 8 << 10
)

// tail is the last lines that the file got since it had the given size, indented.
// It is for a message about another failure, so its own is not one.
func tail(path string, since int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(since, size-tailBytes)
	text, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return ""
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return ""
	}
	lines := strings.Split(trimmed, "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  " + strings.Join(lines, "\n  ")
}
