package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

// maxParts is the limit of S3.
const maxParts = 10_000

// upload sends a source in parts, the first of which has been read. Reading is
// one part ahead of sending at most. When it fails, nothing of it stays.
func (s *Store) upload(ctx context.Context, key string, src *source, first *bytes.Buffer, m Match) error {
	if m.Absent { // spares the transfer; the completion decides
		if _, err := s.api.Head(ctx, s.Full(key)); err == nil {
			return fmt.Errorf("put %s: %w", key, blob.ErrExists)
		} else if !isAbsent(err) {
			return err
		}
	}
	nonce := rand.Text()
	id, err := s.api.Create(ctx, s.Full(key), nonce)
	if err != nil {
		return err
	}
	whole, err := s.sendParts(ctx, key, id, src, first)
	if err == nil {
		if err = s.api.Complete(ctx, s.Full(key), id, whole, m); err != nil {
			err = s.settle(ctx, key, nonce, err)
		}
	}
	if err != nil {
		s.abort(ctx, key, id)
	}
	return err
}

// sendParts sends all parts and returns what completes the upload.
func (s *Store) sendParts(ctx context.Context, key, id string, src *source, part *bytes.Buffer) (Whole, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.cfg.Concurrency)
	sum := NewChecksum()
	var parts []*Part
	for {
		if len(parts) == maxParts {
			return Whole{}, errJoin(g.Wait(), &sourceError{fmt.Errorf("more than %d parts of %d bytes: set a larger part_size= in the store's URL: %w",
				maxParts, s.cfg.PartSize, blob.ErrMisconfigured)})
		}
		p, number, data := &Part{Number: len(parts) + 1}, len(parts)+1, part
		parts = append(parts, p)
		_, _ = sum.Write(data.Bytes()) // a hash takes all
		g.Go(func() error {
			if number > 1 { // the first one is the caller's
				defer s.parts.Put(data)
			}
			body := BodyOf(data.Bytes())
			etag, err := s.api.UploadPart(ctx, s.Full(key), id, number, body)
			p.ETag, p.CRC64 = etag, body.CRC64
			return err
		})
		if src.done || ctx.Err() != nil {
			break
		}
		part = s.takeBuffer()
		if err := src.fill(part); err != nil {
			return Whole{}, errJoin(g.Wait(), err)
		}
	}
	if err := g.Wait(); err != nil {
		return Whole{}, err
	}
	whole := Whole{Size: src.size, CRC64: EncodeChecksum(sum)}
	for _, p := range parts {
		whole.Parts = append(whole.Parts, *p)
	}
	return whole, nil
}

// errJoin returns the first of the errors that is one.
func errJoin(sent, read error) error {
	if sent != nil {
		return sent
	}
	return read
}

// abort gives up an upload. It is best effort: Sweep finds what stays.
func (s *Store) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	_ = s.api.Abort(ctx, s.Full(key), id)
}
