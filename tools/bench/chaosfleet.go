package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"

	"temper/internal/proc"
	"temper/internal/service"
	"temper/tools/bench/chaos"
	"temper/workers"
	"temper/workflows"
)

// scatter makes each role a process of its own, as an init system would start them:
// all at once, in no order, and again when they die. The sandbox is a gateway with
// nodes behind it.
func (c *chaosHost) scatter(ctx context.Context) error {
	release, err := service.Claim(ctx, &c.process, func(string) {})
	if err != nil {
		return err
	}
	c.release = release
	children, err := service.Children(&c.process, service.Options{Embedded: true, RolloutWorkers: chaos.Rollouts})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.Path == self {
			child.Path = c.temper
		}
		switch child.Name {
		case "temporal", "s3":
			c.add(filepath.Base(child.Path), child, chaos.Member{Name: child.Name, Server: true})
		case "sandbox":
			if err := c.addSandboxes(child); err != nil {
				return err
			}
		case "control":
			c.add("control", child, chaos.Member{Name: "control-1"})
			for i := 2; i <= chaos.Controls; i++ {
				c.add("control", c.twin(child, fmt.Sprintf("control-%d", i)), chaos.Member{Name: fmt.Sprintf("control-%d", i), Later: true})
			}
		case "trainer":
			c.add("trainer", child, chaos.Member{Name: child.Name})
		default: // rollout-1 and so on
			c.add("rollout", child, chaos.Member{Name: child.Name, Later: child.Name != "rollout-1"})
		}
	}
	return nil
}

// add makes a member of a child of the service.
func (c *chaosHost) add(role string, child proc.Child, m chaos.Member) {
	m.Role = role
	m.Command = func() (*exec.Cmd, error) {
		cmd := exec.Command(child.Path, child.Args...)
		cmd.Stdout, cmd.Stderr = c.log, c.log
		if cmd.Env = child.Env; cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		if role != chaos.Sandbox {
			cmd.Env = append(slices.Clone(cmd.Env), c.armed()...)
		}
		return cmd, nil
	}
	c.members = append(c.members, m)
}

// twin is a child with a name and a health socket of its own.
func (c *chaosHost) twin(child proc.Child, name string) proc.Child {
	out := child
	out.Args = slices.Clone(child.Args)
	for i, arg := range out.Args {
		if strings.HasSuffix(arg, "/"+child.Name) {
			out.Args[i] = strings.TrimSuffix(arg, child.Name) + name
		}
	}
	return out
}

// addSandboxes puts a gateway at the address where the roles look for the sandbox,
// and nodes that join it.
func (c *chaosHost) addSandboxes(child proc.Child) error {
	child.Env = append(slices.Clone(child.Env), workers.SandboxNodeTokenKey+"="+rand.Text())
	role := slices.Index(child.Args, chaos.Sandbox)
	gateway := child
	gateway.Args = append(slices.Clone(child.Args[:role]), "gateway", "--listen", c.process.SandboxAddress)
	c.add("gateway", gateway, chaos.Member{Name: "gateway"})
	addrs, err := proc.Addresses(chaos.Nodes)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		node := child
		node.Args = slices.Clone(child.Args)
		node.Args[slices.Index(node.Args, "--listen")+1] = addr
		node.Args = append(node.Args, "--join", "http://"+c.process.SandboxAddress)
		c.add(chaos.Sandbox, node, chaos.Member{Name: fmt.Sprintf("node-%d", i+1), Later: i > 0})
	}
	return nil
}

// sampling is the activity that rollout workers carry out for a step.
const sampling = "SampleGroups"

// Samplers implements chaos.Host: it reads the histories of the run and its stages.
func (c *chaosHost) Samplers(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, samplersTimeout)
	defer cancel()
	seen := map[string]bool{}
	for open := []string{workflows.RunWorkflowID(chaosRun)}; len(open) > 0; open = open[1:] {
		children, err := c.readSamplers(ctx, open[0], seen)
		if err != nil {
			return 0
		}
		open = append(open, children...)
	}
	return len(seen)
}

// samplersTimeout bounds the reading of histories by a service that may have died.
const samplersTimeout = 10 * time.Second

// readSamplers adds who sampled for a workflow, and returns its children.
func (c *chaosHost) readSamplers(ctx context.Context, id string, seen map[string]bool) (children []string, err error) {
	mine := map[int64]bool{} // events that scheduled sampling
	events := c.client.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return nil, err
		}
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == sampling {
			mine[e.GetEventId()] = true
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); mine[a.GetScheduledEventId()] {
			seen[a.GetIdentity()] = true
		}
		if a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes(); a != nil {
			children = append(children, a.GetWorkflowId())
		}
	}
	return children, nil
}
