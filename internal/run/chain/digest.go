package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"temper/internal/blob"
)

// A document that ends with its own digest shows by itself that a byte of it was changed. A
// change of both shows in the document after it.

// NoDigest stands for the digest while it is made.
var NoDigest = strings.Repeat("0", 2*sha256.Size)

const digestField = `"digest": "`

// Digest is the SHA-256 of v as blob.PutJSON writes it, whose last field "digest" must
// be NoDigest.
func Digest(v any) (string, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", err
	}
	return digestOf(append(data, '\n')), nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// checkDigest compares a document with the digest at its end. Errors:
// blob.ErrCorrupt.
func checkDigest(data []byte) error {
	i := bytes.LastIndex(data, []byte(digestField))
	if i < 0 || len(data) < i+len(digestField)+len(NoDigest) {
		return fmt.Errorf("does not end with its digest: %w", blob.ErrCorrupt)
	}
	at := i + len(digestField)
	blank := bytes.Clone(data)
	want := string(data[at : at+len(NoDigest)])
	copy(blank[at:], NoDigest)
	if have := digestOf(blank); have != want {
		return fmt.Errorf("its digest is %.12s, and its bytes have %.12s: %w", want, have, blob.ErrCorrupt)
	}
	return nil
}

// encode returns the bytes of a manifest with its digest.
func (m *Manifest) encode() ([]byte, error) {
	m.Digest = NoDigest
	var err error
	if m.Digest, err = Digest(m); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// decodeManifest reads a manifest and holds it to its digest. Errors:
// blob.ErrCorrupt.
func decodeManifest(data []byte) (m Manifest, err error) {
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("is no manifest: %w: %w", err, blob.ErrCorrupt)
	}
	if m.Format < 1 || m.Format > Format {
		return m, fmt.Errorf("is of format %d, and this program reads up to %d: %w", m.Format, Format, blob.ErrCorrupt)
	}
	return m, checkDigest(data)
}

// End is what summary.json ends with.
type End struct {
	Head
	// Digest is the sum of the summary with NoDigest in its place.
	Digest string `json:"digest"`
}

// Head is the end of a chain: who has noted it finds out later whether the run is the
// same.
type Head struct {
	// Link is equal for two runs of one id, configuration and seed.
	Link string `json:"link"`
	// Seal is the SHA-256 of the last manifest.
	Seal string `json:"seal"`
}
