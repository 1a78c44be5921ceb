package config_test

import (
	"strings"
	"testing"

	"temper/internal/config"
)

// TestKeepPolicies: all, or enough for the step in flight.
func TestKeepPolicies(t *testing.T) {
	for value, want := range map[string]string{
		"0": "", "2": "", "7": "", "1": "checkpoint.keep_policies: is 1, want 0, or at least 2", "-1": "is -1, want 0, or at least 2",
	} {
		_, err := config.LoadFile("../../configs/ci.yaml", map[string]string{"checkpoint.keep_policies": value})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", value, err, want)
		}
	}
}
