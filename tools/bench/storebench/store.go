package storebench

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

	"temper/internal/blob"
	"temper/internal/config"
	"temper/tools/bench/meter"
)

// Rounds is how often each transfer is repeated; the median counts.
const Rounds = 5

const (
	// smallOps is the number of small operations over which a latency is measured.
	smallOps = 100
	// racers swap one key at the same time, races times.
	racers, races = 16, 20
)

// Config says which store to measure, and how.
type Config struct {
	Store blob.Store
	Size  int64 // of the large blob
	// Cold reads files from the disk and not from the page cache.
	Cold bool
	Out  io.Writer
}

// Run prints the throughput of a store beside that of its client library, the
// latencies of small operations, and what a race of writers ended with.
func Run(ctx context.Context, c Config) (err error) {
	b := &storeBench{Config: c, folder: "bench/" + rand.Text() + "/"}
	defer func() { err = errors.Join(err, clean(context.WithoutCancel(ctx), c.Store, b.folder)) }()
	fmt.Fprintf(c.Out, "store %s, large blob %s\n", c.Store.Locate(""), config.Bytes(c.Size))
	for _, measure := range []func(context.Context) error{b.throughput, b.latencies, b.race} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// storeBench works below a folder of its own and removes what it put there.
type storeBench struct {
	Config
	folder string
}

// transfer is one way to move the large blob.
type transfer struct {
	name, beside string
	move         func(context.Context) error
	warm         func(context.Context) error // runs before each move, untimed; may be nil
}

// throughput moves the same bytes by the store and by its library, in turns.
func (b *storeBench) throughput(ctx context.Context) error {
	large, rawKey := b.folder+"large", b.folder+"raw"
	var ref blob.Ref
	into := make(memory, b.Size)
	clear(into) // touches it
	verify := func(ctx context.Context) error {
		_, err := blob.ReadRef(ctx, b.Store, ref)
		return err
	}
	transfers := []transfer{
		{"put", "raw put", func(ctx context.Context) (err error) {
			ref, err = b.Store.Put(ctx, large, &noise{left: b.Size}, blob.Always)
			return err
		}, nil},
		{"get", "raw get", func(ctx context.Context) error { return b.get(ctx, large) }, nil},
		{"get in parallel", "raw get", func(ctx context.Context) error {
			_, err := blob.ReadInto(ctx, b.Store, large, nowhere{})
			return err
		}, nil},
		// The raw transfer has its memory already; the untimed call gives the heap
		// as much.
		{"get and verify", "raw get to memory", verify, verify},
	}
	if raw, ok := b.Store.(rawStore); ok {
		transfers = append(transfers,
			transfer{"raw put", "", func(ctx context.Context) error { return raw.RawPut(ctx, rawKey, &noise{left: b.Size}) }, nil},
			transfer{"raw get", "", func(ctx context.Context) error { return raw.RawGet(ctx, rawKey, nowhere{}) }, nil},
			transfer{"raw get to memory", "", func(ctx context.Context) error { return raw.RawGet(ctx, rawKey, into) }, nil})
	}
	return b.compare(ctx, transfers, large, rawKey)
}

// compare repeats the transfers and reverses their order every second time, because
// each one meets the machine in the state in which the one before left it. Freed
// memory is kept, so that no transfer measures how the kernel, or the host of a
// virtual machine, hands out memory.
func (b *storeBench) compare(ctx context.Context, transfers []transfer, keys ...string) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	took := map[string][]time.Duration{}
	for round := range Rounds {
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

// forget drops files from the page cache, where cold reads are asked for.
func (b *storeBench) forget(keys ...string) error {
	f, ok := b.Store.(interface{ Forget(key string) error })
	if !ok || !b.Cold {
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
	rc, err := b.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	// The wrappers hide methods that would copy with blocks of their own.
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{rc}, make([]byte, 1<<20))
	return err
}

// rate prints one line of throughput: the median, and the ratio to the library's
// throughput over the rounds.
func (b *storeBench) rate(name string, took, beside []time.Duration) {
	if len(took) == 0 {
		return
	}
	line := fmt.Sprintf("%-18s %8.1f MiB/s", name, float64(b.Size)/(1<<20)/meter.Median(took).Seconds())
	if len(beside) > 0 {
		shares := make([]float64, len(took))
		for round := range took {
			shares[round] = beside[round].Seconds() / took[round].Seconds()
		}
		slices.Sort(shares)
		line += fmt.Sprintf("   %5.2f x the client library (%.2f to %.2f)", shares[len(shares)/2], shares[0], shares[len(shares)-1])
	}
	fmt.Fprintln(b.Out, line)
}

// latencies times small operations one after the other.
func (b *storeBench) latencies(ctx context.Context) error {
	var swaps, puts []time.Duration
	var head blob.Ref
	data := make([]byte, 4<<10)
	for i := range smallOps {
		copy(data, fmt.Sprint(i))
		started := time.Now()
		if _, err := blob.PutBytes(ctx, b.Store, fmt.Sprintf("%ssmall/%d", b.folder, i), data, blob.IfAbsent); err != nil {
			return err
		}
		puts = append(puts, time.Since(started))
		started = time.Now()
		next, err := b.Store.Swap(ctx, b.folder+"head", head, data)
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
		fmt.Fprintf(b.Out, "%-18s %8.2f ms median, %.2f ms p99 (4 KiB, %d times)\n", row.name,
			milliseconds(meter.Median(row.took)), milliseconds(row.took[len(row.took)*99/100]), len(row.took))
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// race has writers swap one key and counts the winners of each round.
func (b *storeBench) race(ctx context.Context) error {
	var old blob.Ref
	for round := range races {
		refs, errs := make([]blob.Ref, racers), make([]error, racers)
		var wg sync.WaitGroup
		for w := range racers {
			wg.Go(func() {
				refs[w], errs[w] = b.Store.Swap(ctx, b.folder+"race", old, fmt.Appendf(nil, "round %d writer %d", round, w))
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
	fmt.Fprintf(b.Out, "race               one winner in each of %d rounds of %d writers\n", races, racers)
	return nil
}

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

// nowhere is an io.WriterAt that forgets.
type nowhere struct{}

// WriteAt implements io.WriterAt.
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
