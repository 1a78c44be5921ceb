package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLSFiles names PEM files.
type TLSFiles struct {
	Cert string // certificate, followed by its intermediates
	Key  string // private key of Cert
	// ClientCA, when set, makes a server ask every client for a certificate that
	// one of these authorities has signed.
	ClientCA string
}

// Server returns the configuration of a server, or nil without files. Each handshake uses
// the current content of the files; while the files do not match each other, it uses the
// last valid content.
func (f TLSFiles) Server(logger *slog.Logger) (*tls.Config, error) {
	if f == (TLSFiles{}) {
		return nil, nil //nolint:nilnil // without files there is no TLS
	}
	switch {
	case f.Cert == "":
		return nil, errors.New("--tls-cert is missing: --tls-key and --tls-client-ca belong to a certificate")
	case f.Key == "":
		return nil, errors.New("--tls-key is missing: --tls-cert needs its private key")
	}
	r := &reloader{files: f, logger: logger}
	stamp := r.stamps()
	config, err := f.load()
	if err != nil {
		return nil, err
	}
	r.config, r.stamp, r.checked = config, stamp, time.Now()
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         config.NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil },
	}, nil
}

// load reads the current content of the files.
func (f TLSFiles) load() (*tls.Config, error) {
	cert, err := keyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"},
	}
	if f.ClientCA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if config.ClientCAs, err = authorities(f.ClientCA); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS private key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s with private key %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("TLS authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("TLS authorities %s: no PEM certificate in it", file)
	}
	return pool, nil
}

// ClientTLS returns the configuration of a client: ca, when set, replaces the machine's
// authorities, and cert with key identify the client; each connection reads those two
// again. It returns nil when no file is named.
func ClientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil //nolint:nilnil // no files, the defaults of the transport
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if ca != "" {
		if config.RootCAs, err = authorities(ca); err != nil {
			return nil, err
		}
	}
	if cert != "" || key != "" {
		pair, err := keyPair(cert, key)
		if err != nil {
			return nil, err
		}
		// A handshake uses the current content of the files. If they do not match each other,
		// because one of them is being replaced, it uses their first content.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if newer, err := keyPair(cert, key); err == nil {
				return &newer, nil
			}
			return &pair, nil
		}
	}
	return config, nil
}

// recheck is the pause between two checks of the files.
const recheck = time.Second

// reloader serves the newest valid content of the files. It works inside handshakes and
// needs no goroutine.
type reloader struct {
	files  TLSFiles
	logger *slog.Logger

	mu      sync.Mutex
	config  *tls.Config
	stamp   [3]stamp
	checked time.Time
}

// stamp identifies a version of the files.
type stamp struct {
	modified time.Time
	size     int64
}

// current reloads changed files; it keeps the last valid content while they are invalid.
func (r *reloader) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) < recheck {
		return r.config
	}
	r.checked = time.Now()
	now := r.stamps()
	if now == r.stamp {
		return r.config
	}
	r.stamp = now
	config, err := r.files.load()
	if err != nil {
		r.logger.Error("changed certificate cannot be used, the former stays", "err", err)
		return r.config
	}
	r.config = config
	r.logger.Info("certificate reloaded", "cert", r.files.Cert)
	return config
}

func (r *reloader) stamps() (s [3]stamp) {
	for i, name := range []string{r.files.Cert, r.files.Key, r.files.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return s
}
