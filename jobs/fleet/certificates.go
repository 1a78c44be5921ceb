package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"temper/jobs"
)

// Validity of certificates. A rotation makes new ones from the same authority, so that one
// is valid for longer.
const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 90 * 24 * time.Hour
	// clockSkew is how far the clocks of nodes may be behind.
	clockSkew = time.Hour
)

// itemAuthorityKey is the private key of the cluster's authority. It stays in the vault.
const itemAuthorityKey = "tls_ca_key"

// makeCertificates makes the authority if it does not exist, and a certificate for each
// role that speaks TLS, for the addresses of all nodes.
func (v *vault) makeCertificates(ctx context.Context, rotate bool) (err error) {
	if v.items[itemAuthorityKey] == "" {
		v.items[jobs.ItemCA], v.items[itemAuthorityKey], err = newAuthority(v.build.Name)
		if err != nil {
			return err
		}
		v.made, rotate = append(v.made, "the authority of certificates"), true
	}
	addresses, err := v.nomad.NodeAddresses(ctx)
	if err != nil {
		return err
	}
	for _, c := range copies(v.build) {
		if !slices.Contains(c.items, jobs.ItemCert) {
			continue
		}
		cert, key := c.role+"_"+jobs.ItemCert, c.role+"_"+jobs.ItemKey
		if !rotate && covers(v.items[cert], addresses) {
			continue
		}
		if v.items[cert], v.items[key], err = issue(v.items[jobs.ItemCA], v.items[itemAuthorityKey], c.role, addresses); err != nil {
			return err
		}
		v.made = append(v.made, "a certificate of "+c.role)
	}
	return nil
}

// covers reports whether a certificate stays valid for long enough, and for all addresses.
func covers(text string, addresses []net.IP) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Until(cert.NotAfter) < certificateLife/3 {
		return false
	}
	return !slices.ContainsFunc(addresses, func(ip net.IP) bool { return cert.VerifyHostname(ip.String()) != nil })
}

func newAuthority(name string) (cert, key string, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "temper cluster " + name}, NotAfter: time.Now().Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil, nil)
}

func issue(caText, keyText, role string, addresses []net.IP) (cert, key string, err error) {
	caBlock, _ := pem.Decode([]byte(caText))
	keyBlock, _ := pem.Decode([]byte(keyText))
	if caBlock == nil || keyBlock == nil {
		return "", "", errors.New("the authority of certificates is unreadable: restore its variable, or remove it and init again")
	}
	ca, err := x509.ParseCertificate(caBlock.Bytes)
	if err != nil {
		return "", "", fmt.Errorf("authority of certificates: %w", err)
	}
	caKey, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return "", "", fmt.Errorf("key of the authority of certificates: %w", err)
	}
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: role}, NotAfter: time.Now().Add(certificateLife), IPAddresses: addresses, DNSNames: []string{"localhost", role},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, caKey)
}

// sign makes a key and a certificate for it; without a parent it signs itself.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (cert, key string, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return "", "", err
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	if parent == nil {
		parent, parentKey = template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, parentKey)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})), nil
}
