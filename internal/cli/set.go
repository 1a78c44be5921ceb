package cli

import (
	"errors"
	"fmt"
	"strings"

	"temper/internal/config"
)

// ParseSet reads the values of --set; relative paths in them count from the working
// folder. It reports every mistake.
func ParseSet(pairs []string) (map[string]string, error) {
	set := map[string]string{}
	var bad []error
	for _, kv := range pairs {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			bad = append(bad, fmt.Errorf("--set %s: want key=value", kv))
			continue
		}
		set[key] = value
	}
	set, err := config.ResolvePaths(set)
	return set, errors.Join(append(bad, err)...)
}
