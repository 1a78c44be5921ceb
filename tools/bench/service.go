package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/sandbox/httpapi"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
	"temper/workers"
)

// serviceFlags name a service that is running.
type serviceFlags struct {
	url   string
	api   string
	cpuOf []string
}

func (s *serviceFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.url, "url", "", "service: http://HOST:PORT, HOST:PORT or unix:/path; its token in TEMPER_SANDBOX_TOKEN")
	f.StringVar(&s.api, "api", string(loadgen.APIStream), fmt.Sprintf("interface, one of %v; or %s, as rollouts call, with the certificates in TEMPER_SANDBOX_TLS_CA, _CERT and _KEY", loadgen.APIs(), apiClient))
	f.StringSliceVar(&s.cpuOf, "cpu-of", nil, "whose CPU is the service's: process ids, each with its descendants, and cgroup folders")
}

// apiClient is the client of the product in place of one that sees every answer.
const apiClient = "client"

// connect returns the service, and what its processor time is read from.
func (s *serviceFlags) connect() (loadgen.Target, loadgen.CPU, error) {
	cpu, err := loadgen.ParseCPU(s.cpuOf)
	if err != nil {
		return nil, cpu, cli.Usagef("--cpu-of: %w", err)
	}
	if s.api == apiClient {
		options, err := workers.SandboxClientOptions()
		if err != nil {
			return nil, cpu, cli.Usage(err)
		}
		client, err := httpapi.NewClient(s.url, options)
		if err != nil {
			return nil, cpu, cli.Usagef("--url: %w", err)
		}
		return loadgen.FromExecutor(client), cpu, nil
	}
	target, err := loadgen.Connect(s.url, loadgen.Options{API: loadgen.API(s.api), Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return nil, cpu, cli.Usagef("--url, --api: %w", err)
	}
	return target, cpu, nil
}

// nodeFlags size a node that a command starts for itself.
type nodeFlags struct {
	python string
	slots  int
	queue  int
}

func (n *nodeFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&n.python, "python", config.DefaultProcess().Python, "interpreter of the node (TEMPER_PYTHON)")
	f.IntVar(&n.slots, "slots", 64, "programs that the node runs at a time")
	f.IntVar(&n.queue, "queue", 1024, "programs that may wait at the node")
}

// start runs a node.
func (n *nodeFlags) start(cmd *cobra.Command) (*sandboxbench.Child, error) {
	if err := cli.FindPython(n.python); err != nil {
		return nil, cli.Usage(err)
	}
	temper, err := temperBinary()
	if err != nil {
		return nil, err
	}
	return sandboxbench.StartChild(cmd.Context(), temper, sandboxbench.ChildConfig{Name: "node", Args: sandboxbench.Role("sandbox",
		"--listen", "127.0.0.1:0", "--python", n.python, "--slots", fmt.Sprint(n.slots), "--queue", fmt.Sprint(n.queue),
	)})
}

// withNode starts a node, calls use with it, and stops it.
func withNode(cmd *cobra.Command, n nodeFlags, api string, use func(target loadgen.Target, node *sandboxbench.Child) error) error {
	node, err := n.start(cmd)
	if err != nil {
		return err
	}
	stop := func() error { return node.Stop(15 * time.Second) }
	target, err := loadgen.Connect(node.Address, loadgen.Options{API: loadgen.API(api), Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return errors.Join(cli.Usagef("--api: %w", err), stop())
	}
	err = use(target, node)
	target.Close()
	return errors.Join(err, stop())
}
