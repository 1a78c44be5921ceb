package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/inference/remote"
	"temper/sandbox/server"
	"temper/workers"
)

func (f *roleFlags) engineCommand() *cobra.Command {
	var o workers.EngineOptions
	cmd := &cobra.Command{
		Use: roleEngine, Short: "Serve the policies of a run to rollout processes", Args: cobra.NoArgs,
		Long: `Serves the policies of a run on this machine's device to the processes of temper role rollout
--engines registry, which find it by its entry in the store. Any number of engines, under names of
their own, share the trajectories of a run, and may come and go while it goes on. Prints one line of
JSON when it answers.

The token that engines ask for comes from ` + workers.EngineTokenKey + ` or --token-file.`,
	}
	p, flags := f.process, cmd.Flags()
	flags.StringVar(&o.Run, "run", "", "id of the run")
	flags.StringVar(&o.Name, "name", hostName(), "name of this engine among those of the run; by default that of the machine")
	flags.IntVar(&o.Slots, "slots", 64, "generations at a time; others wait")
	flags.IntVar(&o.Capacity, "capacity", 0, "tokens that the caches hold, at least one context of the run; by default as many whole contexts as --slots")
	flags.StringVar(&o.Backend, "backend", "go", "GoMLX backend")
	flags.StringVar(&o.Advertise, "advertise", "", "host:port or URL at which rollout processes reach this engine; by default where it listens")
	flags.DurationVar(&o.Wait, "wait", 0, "how long the run may be missing from the store")
	flags.DurationVar(&o.Drain, "drain", 10*time.Second, "how long generations may go on after SIGTERM; then they are handed over as far as they are")
	flags.StringVar(&o.Server.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	flags.StringVar(&o.Server.TLS.Key, "tls-key", "", "PEM file of its private key")
	tokenFile := flags.String("token-file", "", "file with the token, in place of "+workers.EngineTokenKey)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		o.Server.Listen, o.Server.Insecure = f.address(anyPort), f.insecure
		if o.Server.Token, err = workers.EngineToken(*tokenFile); err != nil {
			return cli.Usage(err)
		}
		var none error
		if o.Capacity == 0 && cmd.Flags().Changed("capacity") {
			none = errors.New("--capacity: is 0 tokens, want at least one context of the run")
		}
		if err := errors.Join(none, o.Check(), p.Validate()); err != nil {
			return cli.Usage(err)
		}
		log := cli.NewLogger(roleEngine)
		o.Place, o.Server.Logger = workers.Place{Process: *p, Log: log, Weights: workers.SharedWeights(log)}, log
		o.OnReady = func(url string) {
			if err := server.WriteReady(cmd.OutOrStdout(), url, map[string]any{"role": roleEngine, "run": o.Run, "name": o.Name}); err != nil {
				log.Error("ready line is not written", "err", err)
			}
		}
		err = workers.PolicyEngine(o).Serve(cmd.Context(), workers.ServeOptions{Log: log})
		if errors.Is(err, blob.ErrNotExist) {
			return cli.Usage(err)
		}
		return err
	}
	return cmd
}

// hostName is this machine's name as far as it may stand in a key.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// engineFlags define which engines of other processes sample.
type engineFlags struct{ where, tokenFile string }

// registryWord is the value of --engines with which engines are found in the store.
const registryWord = "registry"

func (f *engineFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.where, "engines", "", `engines of other processes that sample: "`+registryWord+`" finds those of temper role engine by their entries in the store; or addresses, with commas between them. Empty = one in this process`)
	cmd.Flags().StringVar(&f.tokenFile, "engine-token-file", "", "file with the token of the engines, in place of "+workers.EngineTokenKey)
}

// options finds all mistakes at once.
func (f *engineFlags) options() (workers.EnginesOptions, error) {
	var o workers.EnginesOptions
	if f.where == "" {
		if f.tokenFile != "" {
			return o, errors.New("--engine-token-file: is for --engines")
		}
		return o, nil
	}
	client, err := workers.EngineClientOptions(f.tokenFile)
	errs := []error{err}
	o.Client = client
	if f.where == registryWord {
		o.Registry = true
		return o, errors.Join(errs...)
	}
	for address := range strings.SplitSeq(f.where, ",") {
		address = strings.TrimSpace(address)
		if err := remote.CheckAddress(address); err != nil {
			errs = append(errs, fmt.Errorf("--engines: %w, or the word %q", err, registryWord))
		}
		if slices.Contains(o.Addresses, address) {
			errs = append(errs, fmt.Errorf("--engines: %s is named twice", address))
		}
		o.Addresses = append(o.Addresses, address)
	}
	return o, errors.Join(errs...)
}
