package board

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
	"temper/tools/bench/sandboxbench"
)

// startTemper starts a node of this service.
func startTemper(ctx context.Context, cfg Config) (*running, error) {
	node, err := sandboxbench.StartChild(ctx, cfg.Binary, sandboxbench.ChildConfig{Name: "node", Args: sandboxbench.Role("sandbox",
		"--listen", "127.0.0.1:0", "--python", cfg.Python, "--sessions", fmt.Sprint(max(cfg.Idle+8, 256)),
	)})
	if err != nil {
		return nil, err
	}
	r := &running{unit: "session", cpu: loadgen.CPU{PIDs: []int{node.PID()}}, stop: func() error { return node.Stop(15 * time.Second) }}
	if r.target, err = loadgen.Connect(node.Address, loadgen.Options{API: loadgen.APIStream, Token: os.Getenv("TEMPER_SANDBOX_TOKEN")}); err != nil {
		return r, err
	}
	client, err := httpapi.NewClient(node.Address, httpapi.Options{Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return r, err
	}
	r.stop = func() error {
		r.target.Close()
		client.Close()
		return node.Stop(15 * time.Second)
	}
	r.idle = func(ctx context.Context, n int) (int64, error) { return idleSessions(ctx, client, node.PID(), n) }
	r.layers, err = layersOf(ctx, client)
	return r, err
}

// idleSessions opens n sessions, and returns the memory of one.
func idleSessions(ctx context.Context, client *httpapi.Client, pid, n int) (int64, error) {
	before := meter.Memory(pid)
	for i := range n {
		res, err := client.Execute(ctx, sandbox.Request{ID: fmt.Sprintf("board-idle-%d", i), Run: "board", Session: fmt.Sprint(i), Code: "x = 1"})
		if err != nil || res.Status != sandbox.StatusOK {
			return 0, fmt.Errorf("session %d: %s %s %w", i, res.Status, res.Reason, err)
		}
	}
	idle := (meter.Memory(pid) - before) / int64(n)
	for i := range n {
		if _, err := client.CloseSession(ctx, "board", fmt.Sprint(i)); err != nil {
			return 0, fmt.Errorf("close session %d: %w", i, err)
		}
	}
	return idle, nil
}

// layersOf asks a node which of its layers hold on this machine.
func layersOf(ctx context.Context, client *httpapi.Client) (string, error) {
	var status jail.Report
	if err := client.Status(ctx, &status); err != nil {
		return "", fmt.Errorf("status of the node: %w", err)
	}
	var off []string
	for _, l := range status.Off() {
		off = append(off, l.Name)
	}
	text := fmt.Sprintf("%d of %d layers", len(status.Layers)-len(off), len(status.Layers))
	if len(off) > 0 {
		text += ", without " + strings.Join(off, ", ")
	}
	return text + ": namespaces, own root, tmpfs, seccomp, landlock, cgroup, own user", nil
}
