package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/device"
	"temper/trainer/xla/plugin"
	"temper/trainer/xla/selfcheck"
)

func backendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backend", Short: "Install, list and check the libraries that reach an accelerator", Args: cobra.NoArgs,
		Long: `XLA reaches a device through a plugin, a shared library that is no part of this program.
install takes the plugin from the Python package registry, list shows those on this machine,
and check tries one out in a process of its own.`,
	}
	cmd.AddCommand(backendInstallCommand(), backendListCommand(), backendCheckCommand(), backendProbeCommand())
	return cmd
}

func backendInstallCommand() *cobra.Command {
	var dir string
	var from plugin.Source
	cmd := &cobra.Command{
		Use: "install " + strings.Join(plugin.Names(), "|"), Short: "Install a plugin, and say what it needs from the system", Args: cobra.ExactArgs(1),
		Long: `Downloads the wheel of the plugin by python3 -m pip, with its pinned version and SHA-256, and
unpacks the plugin alone. pip installs nothing. Without pip it prints the command to run on
another machine; --from takes the wheel from a file.`,
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the plugin; default "+plugin.PathEnv+", or .local/lib/go-xla in the home folder, where it is found by name")
	cmd.Flags().StringVar(&from.File, "from", "", "wheel on this machine, for a machine without a network")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pin, err := plugin.PinOf(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		if dir == "" {
			if dir, err = plugin.DefaultDir(); err != nil {
				return cli.Usage(err)
			}
		}
		from.Progress = cmd.ErrOrStderr()
		path, fresh, err := plugin.Install(cmd.Context(), pin, dir, from)
		if err != nil {
			return err
		}
		word := "installed"
		if !fresh {
			word = "is installed already"
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s %s of %s %s: %s\n", pin.Name, word, pin.Package, pin.Version, path)
		needs, err := plugin.Needs(path, pin.Opened)
		if err != nil {
			return err
		}
		printNeeds(out, needs)
		fmt.Fprintf(out, "%s: %s\n", pin.Name, pin.Note)
		fmt.Fprintf(out, "try it: temper backend check %s\n", backendName(pin.Name, path))
		if missing := plugin.Missing(needs); len(missing) > 0 {
			return fmt.Errorf("%s is installed and cannot work yet: this system lacks %s", pin.Name, strings.Join(missing, ", "))
		}
		return nil
	}
	return cmd
}

// backendName is the shortest name under which a plugin is found.
func backendName(name, path string) string {
	if found, err := plugin.Find(name); err == nil && found == path {
		return "xla:" + name
	}
	return "xla:" + path
}

// printNeeds lists libraries of the system, one to a line.
func printNeeds(out io.Writer, needs []plugin.Library) {
	for _, l := range needs {
		where := l.Path
		if where == "" {
			where = "MISSING"
		}
		if l.By != "" && l.Path != "" {
			continue // what the system's own libraries need is the system's business, while it is there
		}
		if l.Opened {
			where += " (opened when it works)"
		}
		if l.By != "" {
			where += " (for " + l.By + ")"
		}
		fmt.Fprintf(out, "  needs %-32s %s\n", l.Name, where)
	}
}

// foundBackend is a line of temper backend list.
type foundBackend struct {
	Name    string   `json:"name"`
	Build   string   `json:"build"`
	Path    string   `json:"path,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

func backendListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "list", Short: "List the backends of this program and the plugins on this machine", Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all := foundBackends()
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), all)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "BACKEND\tBUILD\tMISSING\tPATH")
		for _, b := range all {
			missing := "-"
			if len(b.Missing) > 0 {
				missing = strings.Join(b.Missing, ",")
			}
			path := b.Path
			if path == "" {
				path = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, b.Build, missing, path)
		}
		return w.Flush()
	}
	return cmd
}

// foundBackends lists the Go backend, the plugins that are there, and those that could be.
func foundBackends() []foundBackend {
	out := []foundBackend{{Name: "go", Build: "in this program"}}
	seen := map[string]bool{}
	for _, p := range plugin.List() {
		seen[p.Name] = true
		b := foundBackend{Name: "xla:" + p.Name, Build: "of unknown origin", Path: p.Path}
		pin, pinned := plugin.PinOf(p.Name)
		if in, err := plugin.Describe(p.Path); err == nil {
			b.Build = in.Package + " " + in.Version
			if pinned == nil && in.WheelSHA256 != pin.SHA256 {
				b.Build += ", not the one that this program was tried with (" + pin.Package + " " + pin.Version + ")"
			}
			if plugin.Verify(p.Path) != nil {
				b.Build += ", changed since it was installed: install it again"
			}
		}
		if needs, err := plugin.Needs(p.Path, pin.Opened); err != nil {
			b.Build += ", " + err.Error()
		} else {
			b.Missing = plugin.Missing(needs)
		}
		out = append(out, b)
	}
	for _, name := range plugin.Names() {
		if !seen[name] {
			out = append(out, foundBackend{Name: "xla:" + name, Build: "not installed (temper backend install " + name + ")"})
		}
	}
	return out
}

// checkFlags are those of a check and of its process.
func checkFlags(cmd *cobra.Command) *string {
	return cmd.Flags().String("mesh", "", "devices to train on, like data=2,model=2; empty = one device")
}

func backendCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check BACKEND", Short: "Train and decode a little on a backend, and compare with the backend go", Args: cobra.ExactArgs(1),
		Long: `Opens a backend such as xla:cpu or xla:/path/of/plugin.so in a process of its own, makes three
updates of a small policy and a generation, and compares losses, log-probabilities, weights and
tokens with those of the backend go.`,
	}
	mesh := checkFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := parseMesh(args[0], *mesh); err != nil {
			return cli.Usage(err)
		}
		if err := device.Check(args[0]); err != nil {
			return cli.Usage(err)
		}
		command, err := probeCommand(args[0], *mesh)
		if err != nil {
			return err
		}
		r, err := selfcheck.Child(cmd.Context(), args[0], command)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, r)
		}
		on := ""
		if r.Mesh != "" {
			on = ", " + r.Mesh
		}
		fmt.Fprintf(out, "%s: %s, %d device(s)%s\n", r.Backend, r.Description, r.NumDevices, on)
		fmt.Fprintf(out, "  trained and decoded like the backend go: loss %.6f and %.6f, log-probabilities within %.2g, weights within %.2g of their movement, same tokens\n",
			r.Loss, r.LossGo, max(r.Logprobs, r.Generated), r.Weights)
		fmt.Fprintf(out, "  %d graphs compiled, %.1f s in all\n", r.Graphs, r.Seconds)
		return nil
	}
	return cmd
}

// parseMesh reads the flag of a mesh over a backend's devices.
func parseMesh(backend, mesh string) (device.Mesh, error) {
	m, err := device.ParseMesh(mesh)
	if err == nil {
		err = device.CheckMesh(backend, m)
	}
	if err != nil {
		return device.Mesh{}, fmt.Errorf("--mesh: %w", err)
	}
	return m, nil
}

// checkTrainerBackend finds mistakes in the name of a backend and in its mesh.
func checkTrainerBackend(backend, mesh string) error {
	_, err := parseMesh(backend, mesh)
	if wrong := device.Check(backend); wrong != nil {
		err = errors.Join(err, fmt.Errorf("--backend: %w", wrong))
	}
	return err
}

// probeCommand is the command line of a check's process.
func probeCommand(backend, mesh string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, "backend", "probe", backend, "--mesh", mesh}, nil
}

// ensureBackend refuses a plugin that does not work with this program, or a mesh that it
// has no devices for, before a role depends on it.
func ensureBackend(ctx context.Context, backend, mesh string) error {
	command, err := probeCommand(backend, mesh)
	if err != nil {
		return err
	}
	return selfcheck.Once(ctx, backend, command)
}

// backendProbeCommand is the process of a check.
func backendProbeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "probe BACKEND", Short: "Do a check in this process", Args: cobra.ExactArgs(1), Hidden: true}
	mesh := checkFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := device.ParseMesh(*mesh)
		if err != nil {
			return cli.Usage(err)
		}
		r, err := selfcheck.Run(cmd.Context(), args[0], m)
		if err != nil {
			return err
		}
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	return cmd
}
