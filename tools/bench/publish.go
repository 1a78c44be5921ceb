package bench

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/meter"
	"temper/tools/bench/storebench"
	"temper/trainer/weights/sharedmem"
)

func publishCommand() *cobra.Command {
	size := config.Bytes(1 << 30)
	var c storebench.PublishConfig
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Measure how a policy gets from an update to the first token of an engine, by memory and by the store, beside plain copies",
		Args:  cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	text := cmd.Flags().String("bytes", size.String(), "size of the weights; needs seven times that in memory")
	cmd.Flags().IntVar(&c.Rounds, "rounds", 3, "policies on each way, of which the median counts")
	cmd.Flags().Float64Var(&c.Changed, "changed", 1, "share of the tensors that an update changes")
	cmd.Flags().StringVar(&c.Folder, "folder", "", "folder of shared weights; empty = a new one in "+sharedmem.Memory)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.UnmarshalText([]byte(*text)); err != nil || size < 1<<20 {
			return cli.Usagef("--bytes %q: want a size such as 256MiB, at least 1MiB", *text)
		}
		if c.Rounds < 1 || !(c.Changed > 0 && c.Changed <= 1) {
			return cli.Usagef("--rounds %d and --changed %g: want at least 1, and a share above 0", c.Rounds, c.Changed)
		}
		c.Size, c.Log = int64(size), cli.NewLogger("bench")
		var err error
		if c.Store, err = openBenchStore(cmd.Context(), p); err != nil {
			return err
		}
		if c.Folder == "" {
			if c.Folder, err = os.MkdirTemp(sharedmem.Memory, "temper-bench-"); err != nil {
				return fmt.Errorf("--folder: %w", err)
			}
			defer os.RemoveAll(c.Folder) //nolint:errcheck // nothing is left in it
		}
		r, err := storebench.Publish(cmd.Context(), c)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), r)
		}
		printPublish(cmd.OutOrStdout(), r)
		return nil
	}
	return cmd
}

// printPublish prints medians.
func printPublish(out io.Writer, r storebench.PublishReport) {
	fmt.Fprintf(out, "%s of weights, %d shards, medians; peak RSS %d MiB\n", config.Bytes(r.Bytes), r.Shards, r.PeakRSS>>20)
	fmt.Fprintf(out, "%-9s %28s %28s %28s %28s   MiB stored, read, mapped, kept\n", "", "publish", "load", "first token", "update to first token")
	for _, way := range []string{storebench.WayFile, storebench.WayStore, storebench.WayHost, storebench.WayProcess} {
		var of []storebench.Publication
		for _, p := range r.Rounds {
			if p.Way == way {
				of = append(of, p)
			}
		}
		median := func(cost func(storebench.Publication) meter.Cost) string {
			c := meter.MedianCost(meter.Pick(of, cost))
			return fmt.Sprintf("%s, CPU %s", c.Wall.Round(time.Millisecond), c.CPU.Round(time.Millisecond))
		}
		last := of[len(of)-1]
		fmt.Fprintf(out, "%-9s %28s %28s %28s %28s   %d, %d, %d, %d\n", way,
			median(func(p storebench.Publication) meter.Cost { return p.Publish }), median(func(p storebench.Publication) meter.Cost { return p.Load }),
			median(func(p storebench.Publication) meter.Cost { return p.Token }), median(storebench.Publication.Total),
			last.Stored>>20, last.Read>>20, last.Mapped>>20, last.Kept>>20)
	}
	for _, plain := range []struct {
		name  string
		costs []meter.Cost
	}{{"copy in memory", r.Copy}, {"file written", r.RawPut}, {"file read", r.RawGet}} {
		if c := meter.MedianCost(plain.costs); len(plain.costs) > 0 {
			fmt.Fprintf(out, "%-15s %s, CPU %s, %.0f MiB/s\n", plain.name, c.Wall.Round(time.Millisecond), c.CPU.Round(time.Millisecond), float64(r.Bytes)/(1<<20)/c.Wall.Seconds())
		}
	}
}
