package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
)

const (
	// benchStoreRounds is how often each transfer is repeated; the median counts.
	benchStoreRounds = 5
	// benchStoreOps is how many small operations a latency is measured over.
	benchStoreOps = 100
	// benchRacers swap one key at once, benchRaces times.
	benchRacers, benchRaces = 16, 20
)

// rawStore is a store that also moves bytes with its client library alone.
type rawStore interface {
	RawPut(ctx context.Context, key string, r io.Reader) error
	RawGet(ctx context.Context, key string, w io.WriterAt) error
}

func benchStoreCommand() *cobra.Command {
	size := config.Bytes(1 << 30)
	var cold bool
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure a store: throughput beside its client library's, latencies, a race of 16 writers",
		Args:  cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	text := cmd.Flags().String("size", size.String(), "size of the large blob")
	cmd.Flags().BoolVar(&cold, "cold", false, "read files from the disk, not from the page cache")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.UnmarshalText([]byte(*text)); err != nil || size < 1 {
			return cli.Usagef("--size %q: want a size such as 256MiB", *text)
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		b := &storeBench{store: store, folder: "bench/" + rand.Text() + "/", size: int64(size), cold: cold, out: cmd.OutOrStdout()}
		return b.run(cmd.Context())
	}
	return cmd
}

// storeBench works below a folder of its own and removes what it put there.
type storeBench struct {
	store  blob.Store
	folder string
	size   int64
	cold   bool // reads come from the disk
	out    io.Writer
}

func (b *storeBench) run(ctx context.Context) (err error) {
	if err := probeStore(ctx, b.store); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.clean(context.WithoutCancel(ctx))) }()
	fmt.Fprintf(b.out, "store %s, large blob %s\n", b.store.Locate(""), config.Bytes(b.size))
	for _, step := range []func(context.Context) error{b.throughput, b.latencies, b.race} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// transfer is one way to move the large blob.
type transfer struct {
	name, beside string
	move         func(context.Context) error
	warm         func(context.Context) error // what comes before it, untimed; nil for nothing
}

// throughput moves the same bytes by the store and by its library, in turns.
func (b *storeBench) throughput(ctx context.Context) error {
	large, rawKey := b.folder+"large", b.folder+"raw"
	var ref blob.Ref
	into := make(memory, b.size)
	clear(into) // touches it
	verify := func(ctx context.Context) error {
		_, err := blob.ReadRef(ctx, b.store, ref)
		return err
	}
	transfers := []transfer{
		{"put", "raw put", func(ctx context.Context) (err error) {
			ref, err = b.store.Put(ctx, large, &noise{left: b.size}, blob.Always)
			return err
		}, nil},
		{"get", "raw get", func(ctx context.Context) error { return b.get(ctx, large) }, nil},
		{"get in parallel", "raw get", func(ctx context.Context) error {
			_, err := blob.ReadInto(ctx, b.store, large, nowhere{})
			return err
		}, nil},
		// The raw one has its memory already, so the heap is given it here.
		{"get and verify", "raw get to memory", verify, verify},
	}
	if raw, ok := b.store.(rawStore); ok {
		transfers = append(transfers,
			transfer{"raw put", "", func(ctx context.Context) error { return raw.RawPut(ctx, rawKey, &noise{left: b.size}) }, nil},
			transfer{"raw get", "", func(ctx context.Context) error { return raw.RawGet(ctx, rawKey, nowhere{}) }, nil},
			transfer{"raw get to memory", "", func(ctx context.Context) error { return raw.RawGet(ctx, rawKey, into) }, nil})
	}
	return b.compare(ctx, transfers, large, rawKey)
}

// compare repeats the transfers, in the other order every second time, as each
// finds the machine as the one before it leaves it. The memory of garbage is kept,
// so that none measures how the kernel, or the host of a virtual machine, gives memory.
func (b *storeBench) compare(ctx context.Context, transfers []transfer, keys ...string) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	took := map[string][]time.Duration{}
	for round := range benchStoreRounds {
		for i := range transfers {
			t := transfers[i]
			if round%2 == 1 {
				t = transfers[len(transfers)-1-i]
			}
			if t.warm != nil {
				if err := t.warm(ctx); err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
			}
			if err := b.forget(keys...); err != nil {
				return err
			}
			runtime.GC()
			started := time.Now()
			if err := t.move(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			took[t.name] = append(took[t.name], time.Since(started))
		}
	}
	for _, t := range transfers {
		b.rate(t.name, took[t.name], took[t.beside])
	}
	return nil
}

// forget lets a store on files read from the disk, where that is asked for.
func (b *storeBench) forget(keys ...string) error {
	f, ok := b.store.(interface{ Forget(key string) error })
	if !ok || !b.cold {
		return nil
	}
	for _, key := range keys {
		if err := f.Forget(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (b *storeBench) get(ctx context.Context, key string) error {
	rc, err := b.store.Get(ctx, key)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	// Plain ones: both have blocks of their own.
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{rc}, make([]byte, 1<<20))
	return err
}

// rate prints one line of throughput: the medians, and what the rounds say of
// ours beside the library's.
func (b *storeBench) rate(name string, took, beside []time.Duration) {
	if len(took) == 0 {
		return
	}
	line := fmt.Sprintf("%-18s %8.1f MiB/s", name, float64(b.size)/(1<<20)/middle(took).Seconds())
	if len(beside) > 0 {
		shares := make([]float64, len(took))
		for round := range took {
			shares[round] = beside[round].Seconds() / took[round].Seconds()
		}
		slices.Sort(shares)
		line += fmt.Sprintf("   %5.2f x the client library (%.2f to %.2f)", shares[len(shares)/2], shares[0], shares[len(shares)-1])
	}
	fmt.Fprintln(b.out, line)
}

// latencies times small operations one after the other.
func (b *storeBench) latencies(ctx context.Context) error {
	var swaps, puts []time.Duration
	var head blob.Ref
	data := make([]byte, 4<<10)
	for i := range benchStoreOps {
		copy(data, fmt.Sprint(i))
		started := time.Now()
		if _, err := blob.PutBytes(ctx, b.store, fmt.Sprintf("%ssmall/%d", b.folder, i), data, blob.IfAbsent); err != nil {
			return err
		}
		puts = append(puts, time.Since(started))
		started = time.Now()
		next, err := b.store.Swap(ctx, b.folder+"head", head, data)
		if err != nil {
			return err
		}
		swaps, head = append(swaps, time.Since(started)), next
	}
	for _, row := range []struct {
		name string
		took []time.Duration
	}{{"conditional put", puts}, {"swap", swaps}} {
		slices.Sort(row.took)
		fmt.Fprintf(b.out, "%-18s %8.2f ms median, %.2f ms p99 (4 KiB, %d times)\n", row.name,
			ms(middle(row.took)), ms(row.took[len(row.took)*99/100]), len(row.took))
	}
	return nil
}

// race has writers swap one key and counts the winners of each round.
func (b *storeBench) race(ctx context.Context) error {
	var old blob.Ref
	for round := range benchRaces {
		refs, errs := make([]blob.Ref, benchRacers), make([]error, benchRacers)
		var wg sync.WaitGroup
		for w := range benchRacers {
			wg.Go(func() {
				refs[w], errs[w] = b.store.Swap(ctx, b.folder+"race", old, fmt.Appendf(nil, "round %d writer %d", round, w))
			})
		}
		wg.Wait()
		winners := 0
		for w, err := range errs {
			if err == nil {
				winners, old = winners+1, refs[w]
			} else if !errors.Is(err, blob.ErrConflict) {
				return fmt.Errorf("race: %w", err)
			}
		}
		if winners != 1 {
			return fmt.Errorf("race: %d winners in round %d, want one: do not use this store for more than one writer", winners, round)
		}
	}
	fmt.Fprintf(b.out, "race               one winner in each of %d rounds of %d writers\n", benchRaces, benchRacers)
	return nil
}

func (b *storeBench) clean(ctx context.Context) error {
	infos, err := b.store.List(ctx, b.folder)
	for _, info := range infos {
		err = errors.Join(err, b.store.Delete(ctx, info.Key))
	}
	return err
}

// middle is the median.
func middle(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// noise is a source of bytes that cost nothing and do not compress.
type noise struct {
	left  int64
	block []byte
}

// Read implements io.Reader.
func (n *noise) Read(p []byte) (int, error) {
	if n.left <= 0 {
		return 0, io.EOF
	}
	if n.block == nil {
		n.block = make([]byte, 1<<20)
		_, _ = mathrand.NewChaCha8([32]byte{}).Read(n.block) // never fails
	}
	count := copy(p[:min(int64(len(p)), n.left)], n.block)
	n.left -= int64(count)
	return count, nil
}

// memory is an io.WriterAt of a fixed length.
type memory []byte

// WriteAt implements io.WriterAt.
func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }

// nowhere is an io.WriterAt that forgets.
type nowhere struct{}

// WriteAt implements io.WriterAt.
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
