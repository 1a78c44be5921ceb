package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
)

// shuffled is a store whose ranges arrive in any order, some of them spoilt.
type shuffled struct {
	*memblob.Store
	rng   *rand.Rand
	spoil func(try int, data []byte) []byte
	tries int
}

func (s *shuffled) ReadInto(ctx context.Context, key string, w io.WriterAt) (int64, error) {
	rc, err := s.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	data, err := io.ReadAll(rc)
	if err != nil {
		return 0, err
	}
	s.tries++
	data = s.spoil(s.tries, bytes.Clone(data))
	const piece = 333_333 // no divisor of anything
	var starts []int
	for at := 0; at < len(data); at += piece {
		starts = append(starts, at)
	}
	s.rng.Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	for _, at := range starts {
		if _, err := w.WriteAt(data[at:min(at+piece, len(data))], int64(at)); err != nil {
			return 0, err
		}
	}
	return int64(len(data)), nil
}

// TestReadRefHashesWhatArrivesInAnyOrder and tells damage that lasts from damage on the way.
func TestReadRefHashesWhatArrivesInAnyOrder(t *testing.T) {
	whole := func(_ int, data []byte) []byte { return data }
	flip := func(data []byte) []byte { data[len(data)/2] ^= 1; return data }
	for name, row := range map[string]struct {
		spoil func(try int, data []byte) []byte
		want  error
		tries int
	}{
		"whole": {whole, nil, 1},
		"one bit wrong once": {func(try int, data []byte) []byte {
			if try == 1 {
				return flip(data)
			}
			return data
		}, nil, 2},
		"one bit wrong":   {func(_ int, data []byte) []byte { return flip(data) }, blob.ErrCorrupt, 2},
		"a byte short":    {func(_ int, data []byte) []byte { return data[1:] }, blob.ErrCorrupt, 2},
		"a byte too long": {func(_ int, data []byte) []byte { return append(data, 0) }, blob.ErrCorrupt, 2},
		"empty":           {func(_ int, data []byte) []byte { return nil }, blob.ErrCorrupt, 2},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			data := make([]byte, 33<<20+1)
			_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
			s := &shuffled{Store: memblob.New(), rng: rng, spoil: row.spoil}
			ref, err := blob.PutBytes(t.Context(), s, "k", data, blob.IfAbsent)
			if err != nil {
				t.Fatal(err)
			}
			got, err := blob.ReadRef(t.Context(), s, ref)
			if !errors.Is(err, row.want) || s.tries != row.tries {
				t.Errorf("got %v after %d tries, want %v after %d", err, s.tries, row.want, row.tries)
			}
			if err == nil && !slices.Equal(got, data) {
				t.Error("other bytes than were put")
			}
		})
	}
}

func TestReadRefTellsWhyAReadFailed(t *testing.T) {
	s := &shuffled{Store: memblob.New(), rng: rand.New(rand.NewPCG(1, 2))}
	ref := blob.Ref{Key: "absent", SHA256: fmt.Sprintf("%064d", 0), Size: 64 << 20}
	if _, err := blob.ReadRef(t.Context(), s, ref); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}
