package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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
	cmd.AddCommand(backendInstallCommand(), backendListCommand(), backendCheckCommand())
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
		plugin.PrintNeeds(out, needs)
		fmt.Fprintf(out, "%s: %s\n", pin.Name, pin.Note)
		fmt.Fprintf(out, "try it: temper backend check %s\n", plugin.BackendName(pin.Name, path))
		if missing := plugin.Missing(needs); len(missing) > 0 {
			return fmt.Errorf("%s is installed and cannot work yet: this system lacks %s", pin.Name, strings.Join(missing, ", "))
		}
		return nil
	}
	return cmd
}

func backendListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the backends of this program and the plugins on this machine", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return show(cmd, *asJSON, plugin.Backends(), plugin.PrintBackends)
	}
	return cmd
}

func backendCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check BACKEND", Short: "Train and decode a little on a backend, and compare with the backend go", Args: cobra.ExactArgs(1),
		Long: `Opens a backend such as xla:cpu or xla:/path/of/plugin.so in a process of its own, makes three
updates of a small policy and a generation, and compares losses, log-probabilities, weights and
tokens with those of the backend go.`,
	}
	mesh := cmd.Flags().String("mesh", "", "devices to train on, like data=2,model=2; empty = one device")
	here := cmd.Flags().Bool("here", false, "check in this process and print JSON; a library that crashes ends it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := parseMesh(args[0], *mesh)
		if err != nil {
			return cli.Usage(err)
		}
		if *here {
			r, err := selfcheck.Run(cmd.Context(), args[0], m)
			if err != nil {
				return err
			}
			return cli.PrintJSON(cmd.OutOrStdout(), r)
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
	return []string{self, "backend", "check", backend, "--here", "--mesh", mesh}, nil
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
