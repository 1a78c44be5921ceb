package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"temper/internal/cli"
	"temper/workers"
)

// addPeerTLS adds the files with which a trainer and its members know each other.
func addPeerTLS(flags *pflag.FlagSet, prefix string, files *workers.PeerTLS) {
	flags.StringVar(&files.Cert, prefix+"tls-cert", "", "PEM file of the certificate that this process shows to the other side")
	flags.StringVar(&files.Key, prefix+"tls-key", "", "PEM file of its private key")
	flags.StringVar(&files.CA, prefix+"tls-ca", "", "PEM file of the authorities that must have signed the certificate of the other side")
}

// checkMembers finds what does not go with members.
func checkMembers(o workers.TrainerOptions, mesh bool) error {
	switch {
	case o.Hosts == "" && o.HostsTLS != workers.PeerTLS{}:
		return errors.New("--members-tls-cert, --members-tls-key and --members-tls-ca are for --members")
	case o.Hosts == "":
		return nil
	case mesh:
		return errors.New("--members and --mesh exclude each other: members help a trainer on one device")
	}
	return workers.CheckHosts(o.Hosts, o.HostsTLS)
}

func (f *roleFlags) hostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: roleHost, Short: "Make a part of the passes of a trainer on another host", Args: cobra.NoArgs,
		Long: `Makes passes over microbatches for the process of temper role trainer --members, on this host's
device. The trainer adds up what comes back in the order of the microbatches, so a run has the
same bits with any number of members. They may come, go and be killed while it trains; they need
neither Temporal nor the store, and keep nothing.

The token that the trainer asks for comes from ` + workers.HostTokenKey + `.`,
	}
	var o workers.HostOptions
	flags := cmd.Flags()
	flags.StringVar(&o.Trainer, "trainer", "", "host:port or unix:/path of the trainer's --members")
	flags.StringVar(&o.Name, "name", hostName(), "name of this member in logs; by default that of the machine")
	flags.StringVar(&o.Backend, "backend", "go", "GoMLX backend; must be that of the trainer")
	addPeerTLS(flags, "", &o.TLS)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Check(); err != nil {
			return cli.Usage(err)
		}
		place, err := f.place(roleHost)
		if err != nil {
			return err
		}
		if err := ensureBackend(cmd.Context(), o.Backend, ""); err != nil {
			return err
		}
		o.Log = place.Log
		return f.serve(cmd, workers.Host(o), place.Log)
	}
	return cmd
}
