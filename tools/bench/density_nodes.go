package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"temper/internal/cli"
	"temper/tools/bench/meter"
	"temper/tools/bench/sandboxbench"
)

// densityMember measures as one of several nodes. It writes a line when its sessions
// live, waits for a line before it measures cells, writes the figures, and keeps its
// sessions until its input ends.
func densityMember(ctx context.Context, cfg sandboxbench.DensityConfig, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	cfg.Filled = func(kernels int) error {
		fmt.Fprintln(out, kernels)
		_, err := lines.ReadString('\n')
		return err
	}
	cfg.Measured = func(kernels int) error {
		fmt.Fprintln(out, kernels)
		_, err := io.Copy(io.Discard, lines)
		return err
	}
	d, err := sandboxbench.MeasureDensity(ctx, cfg)
	d.Machine, d.Total = 0, 10_000*(d.Group+d.Owner) // the machine holds those of the other nodes as well
	return errors.Join(err, json.NewEncoder(out).Encode(d))
}

// densityNode is a node in a process of its own.
type densityNode struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// densityOfNodes shares the sessions among nodes: a process holds about six descriptors
// for each, and a machine gives a process only so many. All sessions live at once while
// cells are measured in each node.
func densityOfNodes(ctx context.Context, n int, cfg sandboxbench.DensityConfig, asJSON bool, out io.Writer) (err error) {
	var nodes []*densityNode
	defer func() {
		for _, node := range nodes {
			_ = node.in.Close() // closed before, where all went well
			err = errors.Join(err, node.cmd.Wait())
		}
	}()
	free := meter.StatusBytes("/proc/meminfo", "MemAvailable")
	for i := range n {
		node, err := startDensityNode(ctx, cfg, (cfg.Kernels+n-1-i)/n)
		if err != nil {
			return err
		}
		nodes = append(nodes, node)
	}
	total, err := countAll(nodes, "")
	if err != nil {
		return err
	}
	used := free - meter.StatusBytes("/proc/meminfo", "MemAvailable")
	fmt.Fprintf(out, "%d sessions live in %d nodes; the machine has %.1f GiB less\n", total, n, float64(used)/(1<<30))
	if total, err = countAll(nodes, "\n"); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d sessions live after the cells\n", total)
	for _, node := range nodes {
		if err := node.in.Close(); err != nil {
			return err
		}
		var d sandboxbench.Density
		if err := json.NewDecoder(node.out).Decode(&d); err != nil {
			return fmt.Errorf("figures of a node: %w", err)
		}
		if asJSON {
			err = cli.PrintJSON(out, d)
		} else {
			printDensity(out, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func startDensityNode(ctx context.Context, cfg sandboxbench.DensityConfig, kernels int) (*densityNode, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "density", "--member", "--kernels", strconv.Itoa(kernels), "--python", cfg.Python,
		"--code", cfg.Code, "--profile", string(cfg.Profile), "--callers", strconv.Itoa(cfg.Callers), "--branches", strconv.Itoa(cfg.Branches))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	return &densityNode{cmd: cmd, in: in, out: bufio.NewReader(read)}, nil
}

// countAll writes to each node in turn and adds up how many of its sessions live.
func countAll(nodes []*densityNode, write string) (total int, err error) {
	for _, node := range nodes {
		if _, err := io.WriteString(node.in, write); err != nil {
			return 0, err
		}
		kernels, err := node.count()
		if err != nil {
			return 0, err
		}
		total += kernels
	}
	return total, nil
}

// count reads how many sessions of the node live.
func (n *densityNode) count() (int, error) {
	line, err := n.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("a node ended: %w", err)
	}
	kernels, err := strconv.Atoi(line[:len(line)-1])
	if err != nil {
		return 0, fmt.Errorf("a node failed: %s", line)
	}
	return kernels, nil
}
