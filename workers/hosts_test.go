package workers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/sandbox/server"
)

// rotation is an authority whose certificates replace each other in the same files.
type rotation struct {
	t *testing.T
	PeerTLS
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	dir := t.TempDir()
	r := &rotation{t: t, PeerTLS: PeerTLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	var text []byte
	text, r.key = r.sign(own, own, nil)
	r.cert = own
	r.write(r.CA, "CERTIFICATE", text)
	return r
}

func (r *rotation) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	text, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		r.t.Fatal(err)
	}
	return text, key
}

func (r *rotation) write(path, kind string, der []byte) {
	r.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// issue replaces the certificate, and then, by the function that it returns, its key.
func (r *rotation) issue(serial int64) (replaceKey func()) {
	r.t.Helper()
	cert, key := r.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, r.cert, r.key)
	r.write(r.Cert, "CERTIFICATE", cert)
	return func() {
		r.t.Helper()
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			r.t.Fatal(err)
		}
		r.write(r.Key, "EC PRIVATE KEY", der)
	}
}

// TestMembersMeetThroughRotation: a trainer and a member meet before, in the middle of and after a change of
// their certificates, and show the new ones without a restart.
func TestMembersMeetThroughRotation(t *testing.T) {
	r := newRotation(t)
	r.issue(2)()
	config, err := r.server(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	client, err := server.ClientTLS(r.CA, r.Cert, r.Key)
	if err != nil {
		t.Fatal(err)
	}
	// Both serial numbers of a meeting: the trainer's and the member's.
	meet := func() (serials [2]int64, err error) {
		near, far := net.Pipe()
		member, trainer := tls.Client(near, client), tls.Server(far, config)
		defer near.Close()
		defer far.Close()
		done := make(chan error, 1)
		go func() { done <- trainer.Handshake() }()
		err = errors.Join(member.Handshake(), <-done)
		if err == nil {
			serials = [2]int64{member.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), trainer.ConnectionState().PeerCertificates[0].SerialNumber.Int64()}
			if v := trainer.ConnectionState().Version; v != tls.VersionTLS13 {
				t.Errorf("they speak version %x of TLS", v)
			}
		}
		return serials, err
	}
	client.ServerName = "127.0.0.1"
	await := func(when string, want int64) {
		t.Helper()
		var got [2]int64
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if got, err = meet(); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if got == [2]int64{want, want} {
				return
			}
		}
		t.Errorf("%s the trainer shows certificate %d and the member %d, want %d", when, got[0], got[1], want)
	}
	await("before", 2)
	replaceKey := r.issue(3)
	time.Sleep(1100 * time.Millisecond) // by now the trainer has looked at the files again
	await("while one file is replaced,", 2)
	replaceKey()
	await("after a change", 3)
}
