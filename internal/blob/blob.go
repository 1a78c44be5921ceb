// Package blob owns the port to durable bytes: keys, checksums, conditional
// writes. Drivers live in subpackages; blobtest proves each of them.
//
// Invariant: a key is either absent or holds the complete bytes of one Put.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"temper/internal/fault"
)

// Errors of the port. Wrap them; callers use errors.Is.
var (
	ErrNotExist = errors.New("blob does not exist")
	ErrExists   = fault.Newf(fault.Conflict, "blob exists already")
	ErrCorrupt  = fault.Newf(fault.Corrupt, "blob does not match its reference")
	// ErrConflict says that a Swap found something else than the caller had seen.
	ErrConflict = errors.New("blob changed since it was read")
	// ErrUnavailable marks a failure of the store's servers, network or space
	// that passes or that an operator mends while callers wait: retry.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrMisconfigured marks an answer that stays the same however often one
	// asks: a missing bucket, refused credentials, a folder without permission.
	ErrMisconfigured = fault.Newf(fault.Store, "store is misconfigured")
)

// Ref points to bytes in a Store and pins their content.
type Ref struct {
	Key    string `json:"key"`
	SHA256 string `json:"sha256"` // lower-case hex
	Size   int64  `json:"size"`   // bytes
}

// IsZero reports whether the Ref points nowhere.
func (r Ref) IsZero() bool { return r.Key == "" }

// Info describes a stored blob.
type Info struct {
	Key     string
	Size    int64
	ModTime time.Time
}

// Condition restricts a Put.
type Condition int

const (
	// Always overwrites.
	Always Condition = iota
	// IfAbsent fails with ErrExists when the key exists.
	IfAbsent
)

// Store keeps bytes under slash-separated keys. Implementations are safe for
// concurrent use, also from several processes.
type Store interface {
	// Put stores all of r under key and returns its Ref. It is atomic: readers see
	// the old bytes or the new ones. With IfAbsent at most one of several
	// concurrent writers succeeds; the others get ErrExists.
	Put(ctx context.Context, key string, r io.Reader, cond Condition) (Ref, error)
	// Swap replaces the small blob under key by data if and only if the key still
	// holds the bytes of old; the zero Ref stands for an absent key. It is
	// linearizable with the other Swaps and the IfAbsent Puts of the key, across
	// processes; a key that is swapped must not be overwritten by Always or deleted
	// at the same time. When the answer of a server is lost, the driver reads back:
	// a key that holds data is a success, so callers make data unique, for example
	// by an epoch and a holder. Errors: ErrConflict when the key holds something else.
	Swap(ctx context.Context, key string, old Ref, data []byte) (Ref, error)
	// Get opens the bytes under key. Errors: ErrNotExist.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange opens length bytes under key from offset on; a negative length means
	// all that follow. Where the blob ends earlier, so does the range: one that
	// begins at its end or beyond is empty. A range is not checked against the hash
	// of the whole. Errors: ErrNotExist.
	GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat describes the blob under key. Errors: ErrNotExist.
	Stat(ctx context.Context, key string) (Info, error)
	// List returns what lies under the prefix, sorted by key. No match is no error.
	List(ctx context.Context, prefix string) ([]Info, error)
	// ListFolder returns what lies directly in a folder, "" for the root: the blobs,
	// sorted by key, and the names of the folders, sorted. It does not look into
	// those, so that its cost depends on this folder alone. A folder whose last blob
	// is being written or deleted may be named. An absent folder is no error.
	ListFolder(ctx context.Context, folder string) (blobs []Info, folders []string, err error)
	// Delete removes the key. Deleting an absent key is no error.
	Delete(ctx context.Context, key string) error
	// Locate names the place of a key for people: a path or a URL.
	Locate(key string) string
}

// CheckKey rejects keys that are empty, absolute, unclean or hold control characters.
func CheckKey(key string) error {
	if key == "" || strings.HasPrefix(key, "/") || path.Clean(key) != key || key == ".." || strings.HasPrefix(key, "../") {
		return fmt.Errorf("blob key %q: want a clean relative path", key)
	}
	if i := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }); i >= 0 {
		return fmt.Errorf("blob key %q: control character or backslash at byte %d", key, i)
	}
	return nil
}

// CheckFolder rejects a folder that is neither the root, "", nor a clean relative path.
func CheckFolder(folder string) error {
	if folder == "" {
		return nil
	}
	return CheckKey(folder)
}

// CheckRange rejects a range that begins before the blob does.
func CheckRange(key string, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("range of %s: offset is %d, want 0 or more", key, offset)
	}
	return CheckKey(key)
}

// RefOf returns the Ref that data would have under key.
func RefOf(key string, data []byte) Ref {
	sum := sha256.Sum256(data)
	return Ref{Key: key, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

// CheckSwap rejects a bad key and an old Ref that names another key.
func CheckSwap(key string, old Ref) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if !old.IsZero() && old.Key != key {
		return fmt.Errorf("swap %s: the old reference names %s", key, old.Key)
	}
	return nil
}

// PutBytes stores data under key.
func PutBytes(ctx context.Context, s Store, key string, data []byte, cond Condition) (Ref, error) {
	return s.Put(ctx, key, bytes.NewReader(data), cond)
}

// ReadKey returns all bytes under key. It reads once more if they were damaged on the way.
func ReadKey(ctx context.Context, s Store, key string) ([]byte, error) {
	data, err := readOnce(ctx, s, key)
	if errors.Is(err, ErrCorrupt) {
		data, err = readOnce(ctx, s, key)
	}
	return data, err
}

func readOnce(ctx context.Context, s Store, key string) ([]byte, error) {
	rc, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	return io.ReadAll(rc)
}

// readInParallel is the size from which ReadRef reads several ranges at once.
const readInParallel = 32 << 20

// ReadRef returns the bytes a Ref points to and checks them against it. On a mismatch it
// reads once more: the bytes may have been damaged on the way. Errors: ErrNotExist and
// ErrCorrupt, each in a RefError.
func ReadRef(ctx context.Context, s Store, ref Ref) ([]byte, error) {
	data, err := readChecked(ctx, s, ref)
	if errors.Is(err, ErrCorrupt) {
		data, err = readChecked(ctx, s, ref)
	}
	return data, AtRef(err, ref)
}

func readChecked(ctx context.Context, s Store, ref Ref) ([]byte, error) {
	if p, ok := s.(ParallelReader); ok && ref.Size >= readInParallel {
		info, err := s.Stat(ctx, ref.Key)
		if err != nil {
			return nil, err
		}
		if info.Size != ref.Size { // memory is taken for what is there
			return nil, mismatch(Ref{Size: info.Size}, ref)
		}
		return readFollowed(ctx, p, ref)
	}
	data, err := ReadKey(ctx, s, ref.Key)
	if err != nil {
		return nil, err
	}
	if got := RefOf(ref.Key, data); got != ref {
		return nil, mismatch(got, ref)
	}
	return data, nil
}

// readFollowed reads several ranges at once and hashes behind them.
func readFollowed(ctx context.Context, p ParallelReader, ref Ref) ([]byte, error) {
	b := newHashedBuffer(ref.Size)
	sum := make(chan string, 1)
	go func() { sum <- b.sum() }()
	n, err := p.ReadInto(ctx, ref.Key, b)
	b.close()
	got := Ref{Key: ref.Key, SHA256: <-sum, Size: n}
	if errors.Is(err, io.ErrShortWrite) || err == nil && n != ref.Size {
		return nil, fmt.Errorf("%s: does not have %d bytes: %w", ref.Key, ref.Size, ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	if got != ref {
		return nil, mismatch(got, ref)
	}
	return b.data, nil
}

func mismatch(got, want Ref) error {
	return fmt.Errorf("%s: have %d bytes sha256 %.12s, want %d bytes sha256 %.12s: %w",
		want.Key, got.Size, got.SHA256, want.Size, want.SHA256, ErrCorrupt)
}

// PutJSON stores v as indented JSON under key. Errors: Diverged for a number that is
// not finite.
func PutJSON(ctx context.Context, s Store, key string, v any, cond Condition) (Ref, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return Ref{}, fault.OfEncoding(fmt.Errorf("encode %s: %w", key, err))
	}
	return PutBytes(ctx, s, key, append(data, '\n'), cond)
}

// ReadJSON decodes the JSON under key into v.
func ReadJSON(ctx context.Context, s Store, key string, v any) error {
	data, err := ReadKey(ctx, s, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w", s.Locate(key), err)
	}
	return nil
}
