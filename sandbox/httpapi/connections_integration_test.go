//go:build integration

package httpapi_test

import (
	"strings"
	"syscall"
	"testing"

	"temper/sandbox/budget"
	"temper/sandbox/httpapi"
)

// TestTenThousandConnectionsAtOnce: each is answered, and they cost no more than their
// buffers.
func TestTenThousandConnectionsAtOnce(t *testing.T) {
	many := 10_000
	var files syscall.Rlimit // both ends are in this process
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	many = min(many, int(files.Cur)/2-200)
	server := serveStreams(t, long, httpapi.Config{Budget: budget.New(64 << 20)})
	most := peak(t, func() {
		if n := connections(t, strings.TrimPrefix(server.URL, "http://"), many); n != many {
			t.Errorf("%d of %d were answered", n, many)
		}
	})
	if bound := int64(many) * (64 << 10); most > bound {
		t.Errorf("the heap grew by %d MiB, above %d", most>>20, bound>>20)
	}
	t.Logf("the heap grew by %d MiB for %d connections", most>>20, many)
}
