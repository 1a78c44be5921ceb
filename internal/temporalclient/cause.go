package temporalclient

import (
	"context"
	"errors"
	"strings"
)

// cause shortens a transport's error to its last part, which is the one that
// says why: the layers before it repeat the address.
func cause(err error) string {
	text := err.Error()
	for _, known := range []string{"connection refused", "no such host", "certificate", "namespace", "permission denied", "unauthenticated"} {
		if i := strings.Index(strings.ToLower(text), known); i >= 0 {
			return firstLine(text[i:])
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "deadline exceeded") {
		return "no answer in time"
	}
	return firstLine(text)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimRight(s, `".`)
}
