package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"

	"temper/internal/blob"
)

// maxTries bounds how often a small write is sent again when the server reports a
// concurrent write of the key.
const maxTries = 5

// Put implements blob.Store. An object that fits into one part is one request; a larger one
// is a multipart upload that is hashed while it is sent.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return blob.Ref{}, err
	}
	if cond != blob.Always && cond != blob.IfAbsent {
		return blob.Ref{}, fmt.Errorf("put %s: condition %d: want Always or IfAbsent", key, cond)
	}
	src := &source{ctx: ctx, r: r, sum: sha256.New(), partSize: s.cfg.PartSize}
	if err := s.send(ctx, key, src, Match{Absent: cond == blob.IfAbsent}); err != nil {
		return blob.Ref{}, err
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(src.sum.Sum(nil)), Size: src.size}, nil
}

// PutHashed implements blob.HashedPutter.
func (s *Store) PutHashed(ctx context.Context, want blob.Ref, r io.Reader) error {
	if err := errors.Join(ctx.Err(), blob.CheckKey(want.Key)); err != nil {
		return err
	}
	return s.send(ctx, want.Key, &source{ctx: ctx, r: r, want: &want, partSize: s.cfg.PartSize}, Match{})
}

// send stores all bytes of the source under key.
func (s *Store) send(ctx context.Context, key string, src *source, m Match) error {
	first := s.takeBuffer()
	defer s.parts.Put(first)
	if sized, ok := src.r.(interface{ Len() int }); ok {
		first.Grow(int(min(int64(sized.Len()), s.cfg.PartSize)) + bytes.MinRead)
	}
	if err := src.fill(first); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	var err error
	if src.done {
		err = s.write(ctx, key, BodyOf(first.Bytes()), m)
	} else {
		err = s.upload(ctx, key, src, first, m)
	}
	if err != nil {
		return s.putError(ctx, key, err)
	}
	return nil
}

// putError explains the error of a write: a refused condition means that the key exists.
func (s *Store) putError(ctx context.Context, key string, err error) error {
	var broken *sourceError
	switch {
	case errors.As(err, &broken):
		return fmt.Errorf("put %s: %w", key, broken.err)
	case refused(err):
		return fmt.Errorf("put %s: %w", key, blob.ErrExists)
	default:
		return s.Explain(ctx, "put", key, err)
	}
}

// write puts a small object, and resolves an unclear answer.
func (s *Store) write(ctx context.Context, key string, body Body, m Match) error {
	nonce := rand.Text()
	for try := 1; ; try++ {
		err := s.api.Put(ctx, s.Full(key), body, m, nonce)
		if err == nil {
			return nil
		}
		err = s.settle(ctx, key, nonce, err)
		if !conflicts(err) || try == maxTries {
			return err
		}
	}
}

// settle returns nil if the key holds the write with the nonce, and otherwise the error got
// of the write. A HEAD decides, so that the winner of a race whose answer was lost never
// gets an error that another write won.
func (s *Store) settle(ctx context.Context, key, nonce string, got error) error {
	if !unclear(got) {
		return got
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	o, err := s.api.Head(ctx, s.Full(key))
	switch {
	case err == nil && o.Nonce == nonce:
		return nil
	case err != nil && !isAbsent(err) && (refused(got) || isGone(got)):
		return err // it remains unknown which write the server refused
	default:
		return got
	}
}

// conflicts reports whether the server refused the request because of a concurrent one for
// the key, and not because of the condition.
func conflicts(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Status == http.StatusConflict
}

func (s *Store) takeBuffer() *bytes.Buffer {
	if b, ok := s.parts.Get().(*bytes.Buffer); ok {
		b.Reset()
		return b
	}
	return new(bytes.Buffer)
}

// source splits a reader into parts and hashes them.
type source struct {
	ctx      context.Context // of the Put that owns the source
	r        io.Reader
	sum      hash.Hash // nil if the caller has hashed
	want     *blob.Ref // the hash of the caller, or nil
	size     int64
	partSize int64
	ahead    []byte // one byte read ahead by peek
	done     bool
}

// sourceError is an error of the caller's reader.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// fill reads the next part into b. It sets done with the last part.
func (s *source) fill(b *bytes.Buffer) error {
	_, _ = b.Write(s.ahead) // a buffer takes all
	_, err := b.ReadFrom(io.LimitReader(s, s.partSize-int64(len(s.ahead))))
	if err == nil {
		err = s.peek(int64(b.Len()) < s.partSize)
	}
	if err == nil {
		err = s.ctx.Err()
	}
	if err != nil {
		return &sourceError{err}
	}
	if s.sum != nil {
		_, _ = s.sum.Write(b.Bytes()) // a hash takes all
	}
	s.size += int64(b.Len())
	if s.done && s.want != nil {
		if err := blob.CheckSize(*s.want, s.size); err != nil {
			return &sourceError{err} // before the object exists
		}
	}
	return nil
}

// peek sets done if the source has ended. A short part has ended; otherwise peek reads one
// byte ahead.
func (s *source) peek(short bool) error {
	s.ahead = nil
	if short {
		s.done = true
		return nil
	}
	one := make([]byte, 1)
	_, err := io.ReadFull(s, one)
	if errors.Is(err, io.EOF) {
		s.done = true
		return nil
	}
	s.ahead = one
	return err
}

// Read reads the caller's reader until the context ends.
func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
