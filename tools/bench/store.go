package bench

import (
	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/storebench"
)

func storeCommand(service Service) *cobra.Command {
	size := config.Bytes(1 << 30)
	var c storebench.Config
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure a store: throughput beside its client library's, latencies, a race of 16 writers",
		Args:  cobra.NoArgs,
	}
	p := cli.ProcessFlags(cmd)
	text := cmd.Flags().String("size", size.String(), "size of the large blob")
	cmd.Flags().BoolVar(&c.Cold, "cold", false, "read files from the disk, not from the page cache")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.UnmarshalText([]byte(*text)); err != nil || size < 1 {
			return cli.Usagef("--size %q: want a size such as 256MiB", *text)
		}
		var err error
		if c.Store, err = service.OpenStore(cmd.Context(), p); err != nil {
			return err
		}
		if err := probe(cmd.Context(), c.Store); err != nil {
			return err
		}
		c.Size, c.Out = int64(size), cmd.OutOrStdout()
		return storebench.Run(cmd.Context(), c)
	}
	return cmd
}
