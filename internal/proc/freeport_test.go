package proc_test

import (
	"net"
	"slices"
	"testing"

	"temper/internal/proc"
)

// TestPortsAreLeftToThoseWhoNameThem asks the kernel for so many other ports
// that it would give one of these away.
func TestPortsAreLeftToThoseWhoNameThem(t *testing.T) {
	found, err := proc.Addresses(100)
	if err != nil {
		t.Fatal(err)
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(found))); len(unique) != len(found) {
		t.Errorf("%d different addresses of %d", len(unique), len(found))
	}
	for range 1500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(found, l.Addr().String()) {
			t.Errorf("%s went to somebody who asked for any port", l.Addr())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range found {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
