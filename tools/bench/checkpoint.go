package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/blob/storeurl"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/meter"
	"temper/tools/bench/storebench"
)

func checkpointCommand() *cobra.Command {
	size := config.Bytes(1 << 30)
	c := storebench.CheckpointConfig{Backend: "go"}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Measure checkpoints: how long training waits for one, and saving and loading beside the store's client library",
		Args:  cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	text := cmd.Flags().String("size", size.String(), "size of the state: weights and two moments, 12 bytes a parameter; needs five times that in memory")
	cmd.Flags().StringVar(&c.Backend, "backend", c.Backend, "device that the state is copied from")
	cmd.Flags().IntVar(&c.Rounds, "rounds", storebench.Rounds, "checkpoints, of which the median counts")
	cmd.Flags().BoolVar(&c.Cold, "cold", false, "read files from the disk, not from the page cache")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.UnmarshalText([]byte(*text)); err != nil || size < 1<<20 {
			return cli.Usagef("--size %q: want a size such as 256MiB, at least 1MiB", *text)
		}
		if c.Rounds < 1 {
			return cli.Usagef("--rounds is %d, want at least 1", c.Rounds)
		}
		var err error
		if c.Store, err = openBenchStore(cmd.Context(), p); err != nil {
			return err
		}
		c.Size = int64(size)
		r, err := storebench.Checkpoint(cmd.Context(), c)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), r)
		}
		printCheckpoint(cmd.OutOrStdout(), r)
		return nil
	}
	return cmd
}

// openBenchStore opens a store of its own below the store of the process, so
// that no run and no garbage collection sees what is measured.
func openBenchStore(ctx context.Context, p *config.Process) (blob.Store, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	place, err := p.StorePlace()
	if err != nil {
		return nil, err
	}
	folder := path.Join("bench", rand.Text())
	if place.Kind == config.StoreFile {
		place.Dir = filepath.Join(place.Dir, folder)
	} else {
		place.Prefix = path.Join(place.Prefix, folder)
	}
	store, err := storeurl.Open(ctx, place)
	if err != nil {
		return nil, err
	}
	return store, probe(ctx, store)
}

func printCheckpoint(out io.Writer, r storebench.CheckpointReport) {
	fmt.Fprintf(out, "store %s\nstate of %s in %d shards, %.1fM parameters, medians of %d; peak RSS %d MiB\n",
		r.Store, config.Bytes(r.Bytes), r.Shards, float64(r.Bytes)/12e6, len(r.Rounds), r.PeakRSS>>20)
	line := func(name string, took, raw meter.Cost, share storebench.Share) {
		mib := float64(r.Bytes) / (1 << 20)
		fmt.Fprintf(out, "%-16s %10.1f ms %9.1f MiB/s, CPU %8.1f ms", name, ms(took.Wall), mib/took.Wall.Seconds(), ms(took.CPU))
		if raw.Wall > 0 {
			fmt.Fprintf(out, "   %5.2f x the client library (%.2f to %.2f; it: %.1f MiB/s, CPU %.1f ms)", share.Median, share.Least, share.Most, mib/raw.Wall.Seconds(), ms(raw.CPU))
		}
		fmt.Fprintln(out)
	}
	line("first wait", r.First, meter.Cost{}, storebench.Share{})
	line("training waits", r.Median.Stall, meter.Cost{}, storebench.Share{})
	line("save behind it", r.Median.Save, r.Median.RawPut, r.SaveOf)
	line("load and verify", r.Median.Load, r.Median.RawGet, r.LoadOf)
}
