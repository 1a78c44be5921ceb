package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

// maxResumes is how often a broken read is resumed at its offset without a byte of progress
// in between.
const maxResumes = 2

// Get implements blob.Store. The stream resumes by itself after a lost connection. If the
// server knows the CRC64NVME of the object, the stream ends in ErrCorrupt when other bytes
// arrived.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return nil, err
	}
	body, o, err := s.api.Get(ctx, s.Full(key), Range{Length: -1})
	if err != nil {
		return nil, s.Explain(ctx, "get", key, err)
	}
	return &stream{ctx: ctx, s: s, key: key, body: body, object: o, end: o.Size, sum: NewChecksum()}, nil
}

// GetRange implements blob.Store. The stream resumes by itself after a lost connection,
// like the stream of Get.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := errors.Join(ctx.Err(), blob.CheckRange(key, offset)); err != nil {
		return nil, err
	}
	if length == 0 { // no header asks for nothing
		_, err := s.Stat(ctx, key)
		return io.NopCloser(bytes.NewReader(nil)), err
	}
	body, o, err := s.api.Get(ctx, s.Full(key), Range{Offset: offset, Length: length})
	if beyondEnd(err) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if err != nil {
		return nil, s.Explain(ctx, "get", key, err)
	}
	return &stream{ctx: ctx, s: s, key: key, body: body, object: o, at: offset, end: offset + o.Size}, nil
}

// beyondEnd reports that a range begins where the object has ended. A Range of an
// empty object does.
func beyondEnd(err error) bool {
	var f *Failure
	return errors.As(err, &f) && (f.Status == http.StatusRequestedRangeNotSatisfiable || f.Code == "InvalidRange")
}

// stream reads a range of one version of an object.
type stream struct {
	ctx     context.Context // of the Get that opened it, as io.Reader has none
	s       *Store
	key     string
	body    io.ReadCloser
	object  Object
	at, end int64       // next byte and the one after the last
	sum     hash.Hash64 // nil for a part of an object
	broken  int         // resumes since the last byte
}

func (r *stream) Read(p []byte) (int, error) {
	for {
		n, err := r.body.Read(p)
		if n > 0 {
			r.at, r.broken = r.at+int64(n), 0
			if r.sum != nil {
				_, _ = r.sum.Write(p[:n]) // a hash takes all
			}
			return n, nil
		}
		if r.at >= r.end {
			return 0, r.check()
		}
		if err == nil {
			continue
		}
		if err := r.resume(err); err != nil {
			return 0, err
		}
	}
}

// check compares the whole with the server's checksum.
func (r *stream) check() error {
	if r.sum != nil && r.object.CRC64 != "" && EncodeChecksum(r.sum) != r.object.CRC64 {
		return fmt.Errorf("get %s: CRC64NVME is %s, want %s: %w", r.s.Locate(r.key), EncodeChecksum(r.sum), r.object.CRC64, blob.ErrCorrupt)
	}
	return io.EOF
}

// resume opens the rest of the same version after the cause broke the stream off.
func (r *stream) resume(cause error) error {
	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF
	}
	r.broken++
	if r.broken > maxResumes || r.ctx.Err() != nil || r.object.ETag == "" {
		return r.s.Explain(r.ctx, "get", r.key, cause)
	}
	body, _, err := r.s.api.Get(r.ctx, r.s.Full(r.key), Range{Offset: r.at, Length: r.end - r.at, ETag: r.object.ETag})
	if refused(err) || isAbsent(err) {
		return fmt.Errorf("get %s: it was replaced while it was read: %w", r.s.Locate(r.key), blob.ErrUnavailable)
	}
	if err != nil {
		return r.s.Explain(r.ctx, "get", r.key, err)
	}
	_ = r.body.Close() // broken already
	r.body = body
	return nil
}

// Close ends the stream.
func (r *stream) Close() error { return r.body.Close() }

// ReadInto implements blob.ParallelReader.
func (s *Store) ReadInto(ctx context.Context, key string, w io.WriterAt) (int64, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return 0, err
	}
	o, err := s.api.Head(ctx, s.Full(key))
	if err != nil {
		return 0, s.Explain(ctx, "get", key, err)
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(s.cfg.Concurrency)
	for at := int64(0); at < o.Size && groupCtx.Err() == nil; at += s.cfg.PartSize {
		g.Go(func() error { return s.readRange(groupCtx, key, o, at, w) })
	}
	if err := g.Wait(); err != nil {
		return 0, s.Explain(ctx, "get", key, err)
	}
	return o.Size, nil
}

// readRange copies the part that begins at a place.
func (s *Store) readRange(ctx context.Context, key string, o Object, at int64, w io.WriterAt) error {
	length := min(s.cfg.PartSize, o.Size-at)
	body, _, err := s.api.Get(ctx, s.Full(key), Range{Offset: at, Length: length, ETag: o.ETag})
	if refused(err) {
		return fmt.Errorf("get %s: it was replaced while it was read: %w", s.Locate(key), blob.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	r := &stream{ctx: ctx, s: s, key: key, body: body, object: o, at: at, end: at + length}
	defer r.Close() //nolint:errcheck // a read error has been returned already
	n, err := io.Copy(io.NewOffsetWriter(w, at), r)
	if err == nil && n != length {
		err = io.ErrUnexpectedEOF
	}
	return err
}
