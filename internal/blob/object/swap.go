package object

import (
	"context"
	"errors"
	"fmt"
	"io"

	"temper/internal/blob"
)

// Swap implements blob.Store: it reads the version that is there, compares the
// bytes, and writes over that version alone.
func (s *Store) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), blob.CheckSwap(key, old)); err != nil {
		return blob.Ref{}, err
	}
	m := Match{Absent: old.IsZero()}
	if !m.Absent {
		etag, err := s.versionOf(ctx, key, old)
		if err != nil {
			return blob.Ref{}, err
		}
		m.ETag = etag
	}
	err := s.write(ctx, key, BodyOf(data), m)
	if refused(err) || isAbsent(err) || conflicts(err) {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, blob.ErrConflict)
	}
	if err != nil {
		return blob.Ref{}, s.Explain(ctx, "swap", key, err)
	}
	return blob.RefOf(key, data), nil
}

// versionOf returns the ETag of the bytes of ref. Errors: ErrConflict when the
// key holds other bytes or none.
func (s *Store) versionOf(ctx context.Context, key string, ref blob.Ref) (string, error) {
	body, o, err := s.api.Get(ctx, s.Full(key), Range{Length: -1})
	if isAbsent(err) {
		return "", fmt.Errorf("swap %s: it is gone: %w", key, blob.ErrConflict)
	}
	if err != nil {
		return "", s.Explain(ctx, "swap", key, err)
	}
	have, err := io.ReadAll(io.LimitReader(body, ref.Size+1)) // a longer one differs already
	_ = body.Close()                                          // all of interest was read
	if err != nil {
		return "", s.Explain(ctx, "swap", key, err)
	}
	if blob.RefOf(key, have) != ref {
		return "", fmt.Errorf("swap %s: %w", key, blob.ErrConflict)
	}
	return o.ETag, nil
}
