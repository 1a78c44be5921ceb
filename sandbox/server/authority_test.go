package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/sandbox/server"
)

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.file = filepath.Join(a.dir, "ca.pem")
	a.key = a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	a.must(err)
	a.cert, err = x509.ParseCertificate(der)
	a.must(err)
	a.writePEM(a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate of this machine with its key.
func (a *authority) issue(name string, serial int64) server.TLSFiles {
	a.t.Helper()
	key := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	a.must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	files := server.TLSFiles{Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+".key")}
	a.writePEM(files.Cert, "CERTIFICATE", der)
	a.writePEM(files.Key, "PRIVATE KEY", keyDER)
	return files
}

// trust is the configuration of a client that knows the authority.
func (a *authority) trust() *tls.Config {
	a.t.Helper()
	config, err := server.ClientTLS(a.file, "", "")
	a.must(err)
	return config
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	return key
}

func (a *authority) writePEM(path, kind string, der []byte) {
	a.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
