package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/sandbox/httpapi"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

// tenantsFlags say what the tenants do.
type tenantsFlags struct {
	node   nodeFlags
	cfg    sandboxbench.TenantsConfig
	state  string
	asJSON bool
}

func tenantsCommand() *cobra.Command {
	var o tenantsFlags
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "Let runs with equal ids and sessions, 5 % of their calls hostile, share a node, and account for every call",
		Long: `Starts a node and lets several runs use it at the same time with the same ids and the same names of sessions:
single calls, batches and sessions. Each honest call has an answer of its own; 51 hostile programs and abused sessions
are among them. It counts what was lost, doubled, wrong or blamed on a program that did nothing wrong, and says what the
node holds before and after, and what is left when it has ended. A soak that is interrupted goes on with --state.`,
		Args: cobra.NoArgs,
	}
	o.node.register(cmd)
	f := cmd.Flags()
	f.IntVar(&o.cfg.Calls, "calls", 200000, "calls in all")
	f.IntVar(&o.cfg.Tenants, "tenants", 2, "runs at the same time")
	f.Float64Var(&o.cfg.Hostile, "hostile", 0.05, "share of hostile calls")
	f.IntVar(&o.cfg.Concurrency, "concurrency", 8, "units of each run in flight: a call, a batch of 16 or a session")
	f.Uint64Var(&o.cfg.Seed, "seed", 1, "deals the calls")
	f.DurationVar(&o.cfg.Timeout, "timeout", 2*time.Minute, "how long one try of a call is waited for")
	f.DurationVar(&o.cfg.Rest, "rest", 0, "pause before the memory is compared: more than the 5 minutes for which answers are kept; 0 = compare no memory")
	f.StringVar(&o.state, "state", "", "file with the count so far: written after each tenth, and gone on with when it is there")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runTenants(cmd, o) }
	return cmd
}

func runTenants(cmd *cobra.Command, o tenantsFlags) error {
	c := &o.cfg
	if c.Calls < 10 || c.Tenants < 1 || c.Concurrency < 1 || c.Hostile <= 0 || c.Hostile > 0.5 {
		return cli.Usagef("--calls is %d, --tenants %d, --concurrency %d and --hostile %g: want at least 10, 1, 1 and a share of at most 0.5", c.Calls, c.Tenants, c.Concurrency, c.Hostile)
	}
	var err error
	if c.From, err = readTenants(o.state); err != nil {
		return err
	}
	witness := sandboxbench.NewWitness()
	node, err := o.node.start(cmd)
	if err != nil {
		return err
	}
	client, err := httpapi.NewClient(node.Address, httpapi.Options{Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return errors.Join(err, node.Stop(time.Second))
	}
	out := cmd.OutOrStdout()
	c.PID, c.CloseSession = node.PID(), client.CloseSession
	c.Connect = func(api loadgen.API) (loadgen.Target, error) {
		return loadgen.Connect(node.Address, loadgen.Options{API: api, Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	}
	var noted error
	c.Note = func(r sandboxbench.TenantsReport, i sandboxbench.Inventory) {
		noted = errors.Join(noted, writeTenants(o.state, r))
		if !o.asJSON {
			printTenantsPart(out, r, i)
		}
	}
	report, err := sandboxbench.SoakTenants(cmd.Context(), *c)
	client.Close()
	err = errors.Join(err, noted, node.Stop(30*time.Second))
	if n := len(report.Legs); n > 0 {
		report.Legs[n-1].Survivors = witness.Survivors(node.PID())
	}
	err = errors.Join(err, writeTenants(o.state, report))
	if o.asJSON {
		err = errors.Join(err, cli.PrintJSON(out, report))
	} else {
		printTenants(out, report)
	}
	switch {
	case err == nil && report.Calls < c.Calls:
		err = fmt.Errorf("stopped after %d of %d calls: the same command with --state goes on", report.Calls, c.Calls)
	case err == nil && !report.Exact():
		err = errors.New("the service did not account for every call, or left something behind")
	}
	return err
}

// readTenants reads the count of a soak that was stopped; nil when there is none.
func readTenants(path string) (*sandboxbench.TenantsReport, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // the caller names it
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	var r sandboxbench.TenantsReport
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("--state %s is not the count of a soak: %w", path, err)
	}
	return &r, nil
}

func writeTenants(path string, r sandboxbench.TenantsReport) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // figures for anybody
}

func printTenantsPart(out io.Writer, r sandboxbench.TenantsReport, i sandboxbench.Inventory) {
	fmt.Fprintf(out, "%7d calls in %v: lost %d, doubled %d, wrong %d, blamed %d, retried %d; node %d MiB, %d processes, %d descriptors, %d mounts\n",
		r.Calls, r.Busy.Round(time.Second), r.Lost, r.Doubled+r.Unasked, r.Wrong, r.Blamed, sum(r.Retried), i.NodeRSS>>20, i.Processes, i.Descriptors, i.Mounts)
}

func printTenants(out io.Writer, r sandboxbench.TenantsReport) {
	fmt.Fprintf(out, "seed %d, %d tenants: %d calls, %d honest, %d hostile; %d sessions with %d cells, %d batches\n",
		r.Seed, r.Tenants, r.Calls, r.Honest, r.Hostile, r.Sessions, r.Cells, r.Batches)
	fmt.Fprintf(out, "lost %d, doubled %d, unasked %d, wrong %d, blamed %d; slowest honest call %v: %s\n",
		r.Lost, r.Doubled, r.Unasked, r.Wrong, r.Blamed, r.Slowest.Round(time.Millisecond), r.SlowestCall)
	fmt.Fprintf(out, "tried again: %s\nhostile calls ended: %s\n", counts(r.Retried), counts(r.Ends))
	for i, leg := range r.Legs {
		fmt.Fprintf(out, "part %d, %d calls: p50 %v, p99 %v; node %d to %d MiB, interpreters %d to %d MiB, %d to %d processes, %d to %d descriptors; grown: %s; left: %s\n",
			i+1, leg.Calls, leg.P50.Round(time.Millisecond), leg.P99.Round(time.Millisecond),
			leg.Before.NodeRSS>>20, leg.After.NodeRSS>>20, leg.Before.ZygoteRSS>>20, leg.After.ZygoteRSS>>20, leg.Before.Processes, leg.After.Processes,
			leg.Before.Descriptors, leg.After.Descriptors, none(leg.Growth), none(leg.Survivors))
	}
	for _, f := range r.Failures {
		fmt.Fprintln(out, "failed:", f)
	}
}

func none(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

func counts(of map[string]int) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%d %s", of[kind], kind))
	}
	return none(out)
}
