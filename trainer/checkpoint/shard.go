package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"

	"temper/internal/blob"
	"temper/internal/blob/object"
	"temper/trainer/model"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/safetensors"
)

const (
	// casRoot is the folder of the shards of all runs, by content.
	casRoot     = "cas"
	shardSuffix = ".safetensors"
	// maxShard bounds the values of a shard, in bytes; a larger tensor has a shard alone.
	// Shards are read and written in parallel, and shared by checkpoints.
	maxShard = 64 << 20
	// parallel is the number of shards read or written at a time. Each holds a connection or
	// a file, and no memory.
	parallel = 4
	// piece is the number of bytes read and hashed at a time; it fits the cache.
	piece = 256 << 10
)

// shardKey returns the key of a shard by the SHA-256 of its content.
func shardKey(sha string) string { return path.Join(casRoot, sha[:2], sha+shardSuffix) }

// shard is a safetensors file in F32 over tensors in place. Equal tensors give equal bytes,
// in any order.
type shard struct {
	parts [][]byte // the header, then the values of each tensor
	size  int64
	ref   blob.Ref // zero before seal
	crc   string   // CRC64NVME, "" before seal
}

func newShard(tensors []model.Tensor) (*shard, error) {
	values := make(map[string][]float32, len(tensors))
	infos := make([]safetensors.Info, len(tensors))
	for i, t := range tensors {
		values[t.Name] = t.Data
		infos[i] = safetensors.Info{Name: t.Name, DType: safetensors.F32, Shape: t.Shape}
	}
	header, err := fileHeader(infos)
	if err != nil {
		return nil, err
	}
	s := &shard{parts: [][]byte{header.Start()}, size: header.FileSize()}
	for _, t := range header.Tensors {
		raw := safetensors.F32Bytes(values[t.Name])
		if int64(len(raw)) != t.Size() {
			return nil, fmt.Errorf("encode safetensors: tensor %s has %d bytes, want %d for shape %v", t.Name, len(raw), t.Size(), t.Shape)
		}
		s.parts = append(s.parts, raw)
	}
	return s, nil
}

// seal computes the shard's key and checksum from its bytes.
func (s *shard) seal(ctx context.Context) error {
	sum, crc := sha256.New(), object.NewChecksum()
	for _, part := range s.parts {
		for next := range slices.Chunk(part, piece) {
			if err := ctx.Err(); err != nil {
				return err
			}
			sum.Write(next)
			crc.Write(next)
		}
	}
	s.crc = object.EncodeChecksum(crc)
	sha := hex.EncodeToString(sum.Sum(nil))
	s.ref = blob.Ref{Key: shardKey(sha), SHA256: sha, Size: s.size}
	return nil
}

// put stores the sealed shard, without hashing it again if the store allows that: its tensors
// do not change after seal, and readShard checks every byte.
func (s *shard) put(ctx context.Context, store blob.Store) error {
	return blob.PutHashed(ctx, store, s.ref, &reader{shard: s})
}

// reader reads a shard. It can seek, so that a driver can learn its length and send it twice.
type reader struct {
	*shard
	at int64
}

var (
	_ io.ReadSeeker = (*reader)(nil)
	_ io.WriterTo   = (*reader)(nil)
)

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	offset := r.at
	for _, part := range r.parts {
		if offset < int64(len(part)) {
			n := copy(p, part[offset:])
			r.at += int64(n)
			return n, nil
		}
		offset -= int64(len(part))
	}
	return 0, io.EOF
}

// WriteTo implements io.WriterTo: it writes the rest from the tensors' own memory.
func (r *reader) WriteTo(w io.Writer) (written int64, err error) {
	offset := r.at
	for _, part := range r.parts {
		if offset >= int64(len(part)) {
			offset -= int64(len(part))
			continue
		}
		n, err := w.Write(part[offset:])
		r.at, written, offset = r.at+int64(n), written+int64(n), 0
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(p []byte, at int64) (int, error) {
	n, err := io.ReadFull(&reader{shard: r.shard, at: at}, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of a shard")
	}
	r.at = offset
	return offset, nil
}

// digest is a checksum of a shard with its wanted value.
type digest struct {
	hash.Hash
	name, want string
	text       func(hash.Hash) string
}

// digestOf returns the cheapest checksum that a manifest has for a shard.
func (m manifest) digestOf(ref blob.Ref) digest {
	if crc := m.CRC64NVME[ref.SHA256]; crc != "" {
		sum := object.NewChecksum()
		return digest{Hash: sum, name: "crc64nvme", want: crc, text: func(hash.Hash) string { return object.EncodeChecksum(sum) }}
	}
	return sha256Of(ref)
}

// sha256Of returns the SHA-256 of the shard's name as a digest.
func sha256Of(ref blob.Ref) digest {
	return digest{Hash: sha256.New(), name: "sha256", want: ref.SHA256, text: func(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }}
}

// check compares the sum of the written bytes with the wanted one.
func (d digest) check() error {
	if got := d.text(d.Hash); got != d.want {
		return fmt.Errorf("%s %.12s, want %.12s: %w", d.name, got, d.want, ErrCorrupt)
	}
	return nil
}

// readShard reads a shard and checks every byte by the sum.
// Errors: ErrCorrupt, blob.ErrNotExist.
func readShard(ctx context.Context, store blob.Store, ref blob.Ref, sum digest) ([]model.Tensor, error) {
	info, err := store.Stat(ctx, ref.Key)
	if err != nil {
		return nil, err
	}
	if info.Size != ref.Size { // trust the store's size, not the manifest's, before allocating
		return nil, fmt.Errorf("%s: %d bytes, want %d: %w", ref.Key, info.Size, ref.Size, ErrCorrupt)
	}
	rc, err := store.Get(ctx, ref.Key)
	if err != nil {
		return nil, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	in := &hashed{ctx: ctx, r: rc, sum: sum}
	tensors, err := in.tensors(ref)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Key, err)
	}
	if err := sum.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Key, err)
	}
	return tensors, nil
}

// hashed reads a file once and hashes its bytes.
type hashed struct {
	ctx context.Context //nolint:containedctx // of one readShard
	r   io.Reader
	sum hash.Hash
}

// fill reads len(p) bytes. A shorter file is corrupt.
func (h *hashed) fill(p []byte) error {
	for len(p) > 0 {
		if err := h.ctx.Err(); err != nil {
			return err
		}
		next := p[:min(len(p), piece)]
		_, err := io.ReadFull(h.r, next)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("truncated: %w", ErrCorrupt)
		}
		if err != nil {
			return err
		}
		h.sum.Write(next)
		p = p[len(next):]
	}
	return nil
}

// header reads the bytes before the tensors and returns a file without values.
func (h *hashed) header(ref blob.Ref) (*safetensors.File, error) {
	raw := make([]byte, 8)
	if err := h.fill(raw); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(raw)
	if n > safetensors.MaxHeader || int64(n) > ref.Size-8 {
		return nil, fmt.Errorf("header of %d bytes in a file of %d: %w", n, ref.Size, ErrCorrupt)
	}
	raw = append(raw, make([]byte, n)...)
	if err := h.fill(raw[8:]); err != nil {
		return nil, err
	}
	file, err := safetensors.New(&reader{shard: &shard{parts: [][]byte{raw}, size: int64(len(raw))}}, ref.Size, path.Base(ref.Key))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return file, nil
}

func (h *hashed) tensors(ref blob.Ref) ([]model.Tensor, error) {
	file, err := h.header(ref)
	if err != nil {
		return nil, err
	}
	out := make([]model.Tensor, len(file.Tensors))
	for i, t := range file.Tensors { // in file order; the tensors fill the file without gaps
		out[i] = model.Tensor{Name: t.Name, Shape: t.Shape}
		if t.DType == safetensors.F32 {
			out[i].Data = hostmem.Floats(int(t.Size() / 4))
			err = safetensors.FillF32(out[i].Data, h.fill)
		} else {
			raw := make([]byte, t.Size())
			if err = h.fill(raw); err == nil {
				out[i].Data, err = safetensors.Float32s(t.DType, raw)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	if n, err := io.ReadFull(h.r, make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("longer than %d bytes: %w", ref.Size, ErrCorrupt)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// split cuts a list into runs of at most limit bytes. A larger element is a run alone.
func split[T any](list []T, limit int, size func(T) int) [][]T {
	var out [][]T
	sum := 0
	for _, t := range list {
		n := size(t)
		if len(out) == 0 || sum+n > limit {
			out, sum = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], t)
		sum += n
	}
	return out
}
