package proc

import (
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	tailLines = 10
	// tailBytes has room for the stacks behind which the reason stands.
	tailBytes = 256 << 10
)

var (
	// goStack begins the stacks of a Go program that ended itself; nothing but
	// stacks and the state of the processor follows.
	goStack = regexp.MustCompile(`(?m)^(goroutine \d+ .*\[|runtime stack:)`)
	// pythonStack is the stack above the reason that a Python program gives.
	pythonStack = regexp.MustCompile(`(?m)^Traceback \(most recent call last\):\n(?:[ \t].*\n)*`)
)

// tail is the last lines that the file got since it had the given size, indented
// and without stacks. It is for a message about another failure, so it does not
// report its own.
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
	trimmed := strings.TrimSpace(withoutStacks(string(text)))
	if trimmed == "" {
		return ""
	}
	lines := strings.Split(trimmed, "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  " + strings.Join(lines, "\n  ")
}

// withoutStacks removes the stacks of programs that failed.
func withoutStacks(text string) string {
	if at := goStack.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	return pythonStack.ReplaceAllString(text, "")
}
