package jobs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/jobs"
)

// TestServersThatComeLater: a process of a cluster does not start before the servers that
// it needs have addresses, and then has them.
func TestServersThatComeLater(t *testing.T) {
	name := filepath.Join(t.TempDir(), "places.env")
	t.Setenv(jobs.PlacesKey, name)
	for _, key := range []string{"TEMPER_SANDBOX_ADDRESS", "TEMPER_STORE"} { // AwaitServers sets them: put back afterwards
		t.Setenv(key, "")
	}
	write := func(text string) { // whole or not at all, as the scheduler writes it
		t.Helper()
		if err := errors.Join(os.WriteFile(name+".new", []byte(text), 0o600), os.Rename(name+".new", name)); err != nil {
			t.Fatal(err)
		}
	}
	write(jobs.PlacesMissing + "c-gateway\nTEMPORAL_ADDRESS=127.0.0.1:7\n\n")
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var said strings.Builder
	if err := jobs.AwaitServers(brief, &said, "temper"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(said.String(), "c-gateway") {
		t.Errorf("without a gateway: %v, %q", err, &said)
	}
	done := make(chan error)
	go func() { done <- jobs.AwaitServers(t.Context(), &strings.Builder{}, "temper") }()
	write("TEMPER_SANDBOX_ADDRESS=127.0.0.1:8\nTEMPER_STORE=s3://x?endpoint=http://y&region=z\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("TEMPER_SANDBOX_ADDRESS"); got != "127.0.0.1:8" {
		t.Errorf("the address is %q", got)
	}
	if got := os.Getenv("TEMPER_STORE"); got != "s3://x?endpoint=http://y&region=z" {
		t.Errorf("the store is %q", got)
	}
	t.Setenv(jobs.PlacesKey, "")
	if err := jobs.AwaitServers(t.Context(), &said, "temper"); err != nil {
		t.Errorf("a process of no cluster: %v", err)
	}
}
