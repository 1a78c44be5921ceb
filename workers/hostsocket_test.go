package workers

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"temper/trainer/hosts"
)

// hubAt makes the hub of a trainer.
func hubAt(t *testing.T, address string) (*hosts.Hub, net.Listener, error) {
	t.Helper()
	o := TrainerOptions{Hosts: address, Place: Place{Log: slog.New(slog.DiscardHandler)}}
	hub, l, err := hubOf(o, &Vitals{Metrics: prometheus.NewRegistry()})
	if err == nil {
		t.Cleanup(func() { _ = l.Close() }) // a test may have closed it
	}
	return hub, l, err
}

// TestMembersLeaveFilesAlone: only the socket of a trainer that is gone makes way.
func TestMembersLeaveFilesAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.txt")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := hubAt(t, "unix:"+file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("in place of a file: error %v", err)
	}
	if data, err := os.ReadFile(file); string(data) != "precious" { //nolint:gosec // of this test
		t.Errorf("the file has %q, error %v", data, err)
	}
}

// TestMembersOfALivingTrainer: a second trainer takes no socket that one serves, and takes
// the one that was left.
func TestMembersOfALivingTrainer(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	_, first, err := hubAt(t, "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, error %v: others may connect", info, err)
	}
	if _, _, err := hubAt(t, "unix:"+path); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second trainer: error %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as one that is killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := hubAt(t, "unix:"+path); err != nil {
		t.Errorf("after a trainer that was killed: %v", err)
	}
}

// TestMembersTellNoStrangers: neither side uses an address of another host without TLS.
func TestMembersTellNoStrangers(t *testing.T) {
	r := newRotation(t)
	r.issue(2)()
	for address, row := range map[string]struct {
		files PeerTLS
		want  string // of the error of both
	}{
		"localhost:7420":      {},
		"127.0.0.1:7420":      {},
		"[::1]:7420":          {},
		"unix:/tmp/members":   {},
		"192.0.2.2:7420":      {want: "tls-cert"},
		"trainer.example:742": {want: "tls-cert"},
		":7420":               {want: "tls-cert"},
		"10.0.0.5:7420":       {files: r.PeerTLS},
		"unix:/tmp/other":     {files: r.PeerTLS, want: "without files of TLS"},
		"unix:":               {want: "unix:/path"},
		"trainer":             {want: "host:port"},
	} {
		for side, err := range map[string]error{
			"trainer": CheckHosts(address, row.files),
			"member":  HostOptions{Trainer: address, TLS: row.files, Backend: "go"}.Check(),
		} {
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%s at %s: error %v, want %q", side, address, err, row.want)
			}
		}
	}
}
