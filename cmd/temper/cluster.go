package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// clusterFlags define which cluster is meant, and where its Nomad is.
type clusterFlags struct {
	file string
	cfg  nomad.Config
}

// errChanges ends `temper cluster plan` with its own status when there is something to do.
var errChanges = errors.New("the cluster differs from its file: temper cluster apply makes it so")

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Run the service on a Nomad cluster", Args: cobra.NoArgs,
		Long: `Runs the service on a Nomad cluster, as the file of --cluster describes it. Nomad and its token are
named by NOMAD_ADDR, NOMAD_TOKEN and the other variables of the nomad command.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := &clusterFlags{}
	cmd.PersistentFlags().StringVar(&f.file, "cluster", "cluster.yaml", "file that describes the cluster")
	cmd.PersistentFlags().StringVar(&f.cfg.Address, "nomad", "", "URL of a Nomad agent (NOMAD_ADDR)")
	cmd.AddCommand(
		f.initCommand(), f.planCommand(), f.applyCommand(), f.statusCommand(), f.renderCommand(), f.scaleCommand(),
		f.drainCommand(), f.logsCommand(), f.envCommand(), f.doctorCommand(), f.downCommand(),
	)
	return cmd
}

// open reads the file and connects.
func (f *clusterFlags) open() (*fleet.Fleet, error) {
	c, err := spec.Load(f.file)
	if err != nil {
		return nil, cli.Usage(err)
	}
	cfg := f.cfg
	cfg.Region, cfg.Namespace = c.Nomad.Region, c.Nomad.Namespace
	client, err := nomad.Connect(cfg)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return fleet.New(client, c, buildinfo.Build()), nil
}

// with is a command over an opened cluster.
func (f *clusterFlags) with(do func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		fl, err := f.open()
		if err != nil {
			return err
		}
		return clusterFailure(do(cmd.Context(), cmd, fl, args))
	}
}

// clusterFailure tells mistakes of the operator from faults of the cluster.
func clusterFailure(err error) error {
	for _, mistake := range []error{nomad.ErrDenied, nomad.ErrNotExist, fleet.ErrNoSecrets, fleet.ErrNotWanted, fleet.ErrForeign} {
		if errors.Is(err, mistake) {
			return cli.Usage(err)
		}
	}
	return err
}

func sayTo(out io.Writer) func(string) { return func(text string) { fmt.Fprintln(out, text) } }

func (f *clusterFlags) initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "Make the cluster's tokens and certificates", Args: cobra.NoArgs,
		Long: `Makes what is missing of the cluster's tokens and, with tls: true, its certificates, and gives each job what
it needs in the Nomad variable nomad/jobs/JOB. A token that changes starts its processes again; certificates are
read again by themselves. Call it again after nodes were added. With placement.token: true it also takes the tokens
with which the service itself asks Nomad: of the policy control, and of the policy run (deploy/nomad/acl).`,
	}
	var rotate bool
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make new tokens and certificates in place of those that are there")
	files := map[string]*string{}
	for role, what := range map[string]string{role.Control: "control workers", jobs.Runs: "the workers of runs"} {
		files[role] = cmd.Flags().String(role+"-nomad-token", "", "file with the token of Nomad for "+what)
	}
	password := cmd.Flags().String("postgres-password", "", "file with the password of Temporal's account of Postgres")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		o := fleet.InitOptions{Rotate: rotate, Say: sayTo(cmd.OutOrStdout()), NomadTokens: map[string]string{}}
		var err error
		if o.PostgresPassword, err = tokenFile("postgres-password", *password); err != nil {
			return err
		}
		for role, file := range files {
			token, err := tokenFile(role+"-nomad-token", *file)
			if err != nil {
				return err
			}
			if token != "" {
				o.NomadTokens[role] = token
			}
		}
		return fl.Init(ctx, o)
	})
	return cmd
}

func (f *clusterFlags) planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what apply would change, field by field", Args: cobra.NoArgs,
		Long: `Shows what apply would change, field by field, and what finds no room and why. Ends with 0 when there is
nothing to do, with 2 when there is, and with 1 when the question could not be answered.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		fl, err := f.open()
		if err != nil {
			return fmt.Errorf("%v", err) //nolint:errorlint // a mistake is 1 here: 2 says that there are changes
		}
		plan, err := fl.Plan(cmd.Context())
		if err != nil {
			return err
		}
		plan.Print(cmd.OutOrStdout())
		if !plan.Empty() {
			return cli.Usage(errChanges)
		}
		return nil
	}
	return cmd
}

func (f *clusterFlags) applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply", Short: "Make the cluster what its file says", Args: cobra.NoArgs,
		Long: `Makes the cluster what its file says, one job after another, each when those before it are well. What stops
it is told with what was done; apply again goes on from there.`,
	}
	var o fleet.ApplyOptions
	cmd.Flags().BoolVar(&o.Take, "take", false, "also write over jobs that somebody else has changed")
	cmd.Flags().DurationVar(&o.Patience, "timeout", 10*time.Minute, "how long one job may take until all its instances are well")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		if o.Patience <= 0 {
			return cli.Usagef("--timeout: is %v, want more than 0", o.Patience)
		}
		began := time.Now()
		plan, err := fl.Plan(ctx)
		if err != nil {
			return err
		}
		o.Say = sayTo(cmd.OutOrStdout())
		if err := fl.Apply(ctx, plan, o); err != nil {
			return err
		}
		if plan.Empty() {
			o.Say("nothing to do")
			return nil
		}
		o.Say(fmt.Sprintf("all is well after %.1f s", time.Since(began).Seconds()))
		return nil
	})
	return cmd
}

func (f *clusterFlags) statusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show nodes, jobs and addresses", Args: cobra.NoArgs}
	var asJSON bool
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		s, err := fl.Status(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), s)
		}
		s.Print(cmd.OutOrStdout())
		printTenants(ctx, cmd.OutOrStdout(), fl)
		return nil
	})
	return cmd
}

func (f *clusterFlags) renderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "render [JOB]", Short: "Print jobs as nomad job run -json takes them", Args: cobra.MaximumNArgs(1),
		Long: `Prints the jobs of the file as JSON, or one role's job, in the form that nomad job run -json takes. It asks no
server, unless a role has a job file of your own.`,
	}
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, args []string) error {
		texts, err := fl.Render(ctx, args...)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := cli.PrintJSON(cmd.OutOrStdout(), json.RawMessage(text)); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func (f *clusterFlags) scaleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "scale ROLE COUNT", Short: "Set how many instances of a role there are", Args: cobra.ExactArgs(2)}
	reason := "by hand"
	cmd.Flags().StringVar(&reason, "reason", reason, "what is kept with the change")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, args []string) error {
		count, err := strconv.Atoi(args[1])
		if err != nil || count < 0 {
			return cli.Usagef("scale %s: %q is no count", args[0], args[1])
		}
		if err := fl.Scale(ctx, args[0], count, reason); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is scaled to %d\n", args[0], count)
		return nil
	})
	return cmd
}

func (f *clusterFlags) logsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "logs ROLE|RUN", Short: "Show the end of the logs of a role's instances, or of a run's own workers", Args: cobra.ExactArgs(1)}
	o := fleet.LogOptions{Bytes: 16 << 10}
	cmd.Flags().BoolVar(&o.Stdout, "stdout", false, "standard output in place of the log")
	cmd.Flags().BoolVar(&o.Follow, "follow", false, "go on until Ctrl-C, with all instances, those that begin later too")
	cmd.Flags().Int64Var(&o.Bytes, "bytes", o.Bytes, "how much of the end is shown of each")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, args []string) error {
		return fl.Logs(ctx, args[0], o, cmd.OutOrStdout())
	})
	return cmd
}

func (f *clusterFlags) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "doctor", Short: "Tell what is missing on the Nomad cluster", Args: cobra.NoArgs}
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		missing := 0
		for _, finding := range fl.Doctor(ctx) {
			fmt.Fprintln(cmd.OutOrStdout(), finding)
			if !finding.OK {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d finding(s) are missing", missing)
		}
		return nil
	})
	return cmd
}

func (f *clusterFlags) downCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "down", Short: "Stop every job of the cluster", Args: cobra.NoArgs,
		Long: `Stops every job of the cluster, control first, then runs, and servers last. Databases and objects stay on their nodes, secrets in
their variables: apply starts the cluster again, and runs go on.`,
	}
	var purge bool
	cmd.Flags().BoolVar(&purge, "purge", false, "also make Nomad forget the jobs at once")
	cmd.RunE = f.with(func(ctx context.Context, cmd *cobra.Command, fl *fleet.Fleet, _ []string) error {
		return fl.Down(ctx, purge, sayTo(cmd.OutOrStdout()))
	})
	return cmd
}

// tokenFile reads a token that a flag names; "" for no file.
func tokenFile(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return "", cli.Usage(fmt.Errorf("--%s: %w", flag, err))
	}
	return strings.TrimSpace(string(text)), nil
}
