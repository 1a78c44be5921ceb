package temporalclient_test

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/internal/proc"
	"temper/internal/temporalclient"
)

// isolate keeps the developer's own settings out of a test.
func isolate(t *testing.T) {
	t.Helper()
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "absent.toml"))
	t.Setenv("TEMPORAL_PROFILE", "")
	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("TEMPORAL_NAMESPACE", "")
}

func TestSettingsInOrderOfPrecedence(t *testing.T) {
	isolate(t)
	check := func(cfg temporalclient.Config, address, namespace string) {
		t.Helper()
		got, err := temporalclient.Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got.HostPort != address || got.Namespace != namespace {
			t.Errorf("%s in %s, want %s in %s", got.HostPort, got.Namespace, address, namespace)
		}
	}
	check(temporalclient.Config{}, "localhost:7233", "default")
	t.Setenv("TEMPORAL_ADDRESS", "10.0.0.1:7233")
	t.Setenv("TEMPORAL_NAMESPACE", "rl")
	check(temporalclient.Config{}, "10.0.0.1:7233", "rl")
	check(temporalclient.Config{Address: "a:1", Namespace: "b"}, "a:1", "b")
}

func TestNobodyListens(t *testing.T) {
	isolate(t)
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	checkUnreachable(t, addrs[0], time.Minute, "connection refused") // said at once
}

// TestSomethingElseListens: the port is open, and what is behind it is silent.
func TestSomethingElseListens(t *testing.T) {
	isolate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	checkUnreachable(t, l.Addr().String(), time.Second, "no answer in time")
}

func checkUnreachable(t *testing.T, address string, timeout time.Duration, why string) {
	t.Helper()
	_, err := temporalclient.Dial(t.Context(), temporalclient.Config{Address: address, Timeout: timeout})
	var unreachable *temporalclient.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Address != address {
		t.Fatalf("error %v, want an UnreachableError of %s", err, address)
	}
	want := "no Temporal server answers at " + address + " (" + why + "); start one or set TEMPORAL_ADDRESS"
	if err.Error() != want {
		t.Errorf("text\n%s\nwant\n%s", err, want)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Error("more than one line")
	}
}
