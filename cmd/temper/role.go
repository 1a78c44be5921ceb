package main

import (
	"cmp"
	"log/slog"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/service"
	"temper/sandbox/server"
	"temper/workers"
)

// Names of the roles on the command line: temper role NAME.
const (
	roleControl = "control"
	roleTrainer = "trainer"
	roleHost    = "host"
	roleRollout = "rollout"
	roleEngine  = "engine"
	roleSandbox = "sandbox"
	roleGateway = "gateway"
	roleUI      = "ui"
)

// anyPort is the address of a role that has no configured address: a free port.
const anyPort = "127.0.0.1:0"

// roleFlags are the flags of all roles.
type roleFlags struct {
	process  *config.Process
	listen   string
	insecure bool
}

func roleCommand(p *config.Process) *cobra.Command {
	f := &roleFlags{process: p}
	cmd := group("role", "Start one process of the service", f.controlCommand(), f.trainerCommand(), f.hostCommand(), f.rolloutCommand(), f.engineCommand(), f.sandboxCommand(), f.gatewayCommand(), f.uiCommand())
	cmd.Long = `Starts one process of the service, as temper up and the jobs of a cluster do. It prints one line of JSON when it is
ready, and drains and ends on SIGTERM.`
	cmd.PersistentFlags().StringVar(&f.listen, "listen", "", "host:port or unix:/path where the process answers; port 0 takes a free one, and the ready line names it (default sandbox "+
		p.SandboxAddress+", gateway "+gatewayAddress+", ui "+dashboardAddress+", others a free port)")
	cmd.PersistentFlags().BoolVar(&f.insecure, "insecure", false, "answer other machines without a token or a certificate")
	return cmd
}

// address returns the value of --listen, or else the role's default.
func (f *roleFlags) address(otherwise string) string { return cmp.Or(f.listen, otherwise) }

// place checks the flags and returns the role's place.
func (f *roleFlags) place(name string) (workers.Place, error) {
	if err := f.process.Validate(); err != nil {
		return workers.Place{}, err
	}
	if err := proc.CheckAddress(f.address(anyPort), f.insecure); err != nil {
		return workers.Place{}, cli.Usagef("--listen: %w", err)
	}
	return workers.Place{Process: *f.process, Log: cli.NewLogger(name), Patience: service.Patience(), Supervisor: service.SupervisorPID()}, nil
}

// serve runs a role and prints one line when it polls its queues.
func (f *roleFlags) serve(cmd *cobra.Command, r workers.Role, log *slog.Logger) error {
	return r.Serve(cmd.Context(), workers.ServeOptions{
		Listen: f.address(anyPort), Insecure: f.insecure, Log: log,
		OnReady: func(address string) {
			if err := server.WriteReady(cmd.OutOrStdout(), address, map[string]any{"role": r.Name}); err != nil {
				log.Error("ready line is not written", "err", err)
			}
		},
	})
}

func (f *roleFlags) controlCommand() *cobra.Command {
	cmd := &cobra.Command{Use: roleControl, Short: "Serve workflows and bookkeeping", Args: cobra.NoArgs}
	o := workers.ControlOptions{MemoryOf: service.SupervisorPID()}
	cmd.Flags().IntVar(&o.RolloutShards, "rollout-shards", 1, "parts into which each step of runs that begin here cuts its sampling, for as many temper role rollout processes; changes no bit of a run")
	cluster := cmd.Flags().String("cluster", "", "file of the cluster (cluster.yaml) on which runs get workers of their own that ask for them; Nomad is found by NOMAD_ADDR and NOMAD_TOKEN. Empty = nowhere")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.RolloutShards < 1 || o.RolloutShards > workers.MaxRolloutShards {
			return cli.Usagef("--rollout-shards: is %d, want 1 to %d", o.RolloutShards, workers.MaxRolloutShards)
		}
		if o.Place, err = f.place(roleControl); err != nil {
			return err
		}
		if *cluster != "" {
			if o.Cluster, err = workers.PlaceOn(cmd.Context(), *cluster, o.Log); err != nil {
				return err
			}
		}
		return f.serve(cmd, workers.Control(o), o.Log)
	}
	return cmd
}

// rolloutFlags are the flags of every process that samples.
type rolloutFlags struct {
	concurrent int
	queue      string
	engines    workers.EnginesOptions
}

func (f *rolloutFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.concurrent, "concurrent-rollouts", workers.DefaultRollouts, "trajectories that live at a time: sampled, waiting for the engine, or waiting for a tool")
}

// role returns the rollout role with the given number of activities at a time.
func (f *rolloutFlags) role(place workers.Place, backend string, slots int) (workers.Role, error) {
	if f.concurrent < 1 {
		return workers.Role{}, cli.Usagef("--concurrent-rollouts: is %d, want at least 1", f.concurrent)
	}
	sandbox, err := workers.SandboxClientOptions()
	if err != nil {
		return workers.Role{}, cli.Usage(err)
	}
	return workers.Rollout(workers.RolloutOptions{
		Place: place, Queue: f.queue, Backend: backend, Concurrent: f.concurrent, Slots: slots, Sandbox: sandbox, Engines: f.engines,
	}), nil
}

// slotsBesideTrainer is the number of activities that share the device with the trainer:
// two runs. More would only hold more caches.
const slotsBesideTrainer = 2

func (f *roleFlags) trainerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: roleTrainer, Short: "Serve training on this machine's device", Args: cobra.NoArgs,
		Long: `Serves training on this machine's device. Trajectories are sampled by temper role rollout,
in as many processes as you start, or by this process too with --with-rollouts.`,
	}
	var o workers.TrainerOptions
	var sampling rolloutFlags
	var residentMiB int64
	flags := cmd.Flags()
	flags.StringVar(&o.Backend, "backend", "go", "GoMLX backend")
	flags.StringVar(&o.Queue, "queue", "", "task queue of the one run to work for; empty = all runs without workers of their own")
	flags.StringVar(&sampling.queue, "rollout-queue", "", "like --queue, for the sampling of --with-rollouts")
	mesh := flags.String("mesh", "", "devices of an XLA backend for training, like data=4,model=2; empty = one device")
	flags.StringVar(&o.Hosts, "members", "", "host:port or unix:/path where processes of temper role host join, which make a part of the passes and change no bit; empty = none")
	addPeerTLS(flags, "members-", &o.HostsTLS)
	withRollouts := flags.Bool("with-rollouts", false, "sample in this process, too")
	sampling.add(cmd)
	flags.IntVar(&o.ResidentRuns, "resident-runs", 3, "runs whose state stays in memory while another one is trained; 0 = none")
	flags.Int64Var(&residentMiB, "resident-mib", 1024, "MiB that their states and that of the run in training may take, at 16 bytes a parameter")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := parseMesh(o.Backend, *mesh)
		if err != nil {
			return cli.Usage(err)
		}
		if err := checkMembers(o, m.Several()); err != nil {
			return cli.Usage(err)
		}
		if o.ResidentRuns < 0 || residentMiB < 0 {
			return cli.Usagef("--resident-runs %d and --resident-mib %d: want at least 0", o.ResidentRuns, residentMiB)
		}
		if o.Place, err = f.place(roleTrainer); err != nil {
			return err
		}
		if err := ensureBackend(cmd.Context(), o.Backend, *mesh); err != nil {
			return err
		}
		o.Mesh, o.ResidentBytes, o.Weights = m, residentMiB<<20, workers.SharedWeights(o.Log)
		role := workers.Trainer(o)
		if *withRollouts {
			rollouts, err := sampling.role(o.Place, o.Backend, slotsBesideTrainer)
			if err != nil {
				return err
			}
			role = workers.Together(roleTrainer, role, rollouts)
		}
		if role, err = workers.WhileStanding(role, o.Queue, o.Log); err != nil {
			return err
		}
		return f.serve(cmd, role, o.Log)
	}
	return cmd
}

func (f *roleFlags) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: roleRollout, Short: "Serve sampling and evaluation on this machine's device", Args: cobra.NoArgs,
		Long: `Serves sampling and evaluation on this machine's device. Several such processes, here or
on other machines, share the shards of each step: see --rollout-shards of temper role control. With
--engines, the policy runs in processes of temper role engine and this one has no engine of its own.`,
	}
	var sampling rolloutFlags
	sampling.add(cmd)
	backend := cmd.Flags().String("backend", "go", "GoMLX backend")
	cmd.Flags().StringVar(&sampling.queue, "queue", "", "task queue of the one run to work for; empty = all runs without workers of their own")
	slots := cmd.Flags().Int("slots", 1, "activities at a time; with one, the shards of a step spread over the processes that are free")
	var engines engineFlags
	engines.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *slots < 1 {
			return cli.Usagef("--slots: is %d, want at least 1", *slots)
		}
		if sampling.engines, err = engines.options(); err != nil {
			return cli.Usage(err)
		}
		place, err := f.place(roleRollout)
		if err == nil {
			err = ensureBackend(cmd.Context(), *backend, "")
		}
		if err != nil {
			return err
		}
		place.Weights = workers.SharedWeights(place.Log)
		role, err := sampling.role(place, *backend, *slots)
		if err == nil {
			role, err = workers.WhileStanding(role, sampling.queue, place.Log)
		}
		if err != nil {
			return err
		}
		return f.serve(cmd, role, place.Log)
	}
	return cmd
}
