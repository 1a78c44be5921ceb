package sandboxbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

func (s *scale) start(ctx context.Context) error {
	addresses := make([]string, s.cfg.Nodes)
	for i := range s.cfg.Nodes {
		node, err := s.node(ctx, i+1)
		if err != nil {
			return err
		}
		addresses[i] = node.Address
	}
	args := Role("gateway", "--listen", "127.0.0.1:0")
	for _, a := range addresses {
		args = append(args, "--node", a)
	}
	var err error
	s.gateway, err = StartChild(ctx, s.cfg.Binary, ChildConfig{Name: "gateway", Args: args, Env: s.env()})
	if err != nil {
		return err
	}
	s.add(s.gateway, false)
	return nil
}

// nodeTokenKey is the variable by which gateway and nodes know each other.
const nodeTokenKey = "TEMPER_SANDBOX_NODE_TOKEN" //nolint:gosec // a name

func (s *scale) env() []string {
	return []string{"GOMEMLIMIT=" + strconv.FormatInt(s.cfg.MemoryMax, 10), nodeTokenKey + "=" + s.nodeToken}
}

// node starts the node of that number.
func (s *scale) node(ctx context.Context, number int) (*Child, error) {
	cfg := ChildConfig{Name: "node " + strconv.Itoa(number), Env: s.env(), Args: Role("sandbox", "--listen", "127.0.0.1:0", "--zygotes", "1",
		"--slots", strconv.Itoa(s.cfg.Slots), "--queue", strconv.Itoa(s.cfg.Queue),
	)}
	if s.cfg.Python != "" {
		cfg.Args = append(cfg.Args, "--python", s.cfg.Python)
	}
	if s.cfg.Cgroups != "" {
		cfg.Cgroup, cfg.MemoryMax = fmt.Sprintf("%s/temper-bench-node-%d", s.cfg.Cgroups, number), s.cfg.MemoryMax
	}
	node, err := StartChild(ctx, s.cfg.Binary, cfg)
	if err != nil {
		return nil, err
	}
	s.nodes = append(s.nodes, node)
	s.add(node, number > s.cfg.Nodes)
	return node, nil
}

func (s *scale) add(c *Child, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[c] = &Member{Name: c.Name, Added: added}
	s.order = append(s.order, c)
}

// join registers a node with the gateway.
func (s *scale) join(ctx context.Context, node string) error {
	base, dial, err := loadgen.ParseAddress(s.gateway.Address)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"address": node})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/nodes", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.nodeToken)
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("gateway answers %s", resp.Status)
	}
	return nil
}

// watch looks at the memory of all members until ctx ends, and then once more: one that
// came late may not have been looked at.
func (s *scale) watch(ctx context.Context) {
	for ctx.Err() == nil {
		s.look()
		loadgen.Rest(ctx, 500*time.Millisecond)
	}
	s.look()
}

func (s *scale) look() {
	all := meter.Processes()
	s.mu.Lock()
	order := append([]*Child(nil), s.order...)
	s.mu.Unlock()
	for _, c := range order {
		own := meter.StatusBytes(fmt.Sprintf("/proc/%d/status", c.PID()), "VmHWM")
		var sum int64
		for _, p := range meter.Tree(all, c.PID()) {
			sum += meter.StatusBytes(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID), "Pss")
		}
		s.mu.Lock()
		m := s.members[c]
		m.PeakRSS, m.PeakTree = max(m.PeakRSS, own), max(m.PeakTree, sum)
		s.mu.Unlock()
	}
}

func (s *scale) peaks() []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Member, 0, len(s.order))
	for _, c := range s.order {
		m := *s.members[c]
		if c.cfg.Cgroup != "" {
			m.PeakCgroup = cgroupPeak(c.cfg.Cgroup)
		}
		if c == s.gateway {
			out = append([]Member{m}, out...)
			continue
		}
		out = append(out, m)
	}
	return out
}

// stop ends the gateway before its nodes.
func (s *scale) stop() error {
	var errs []error
	if s.gateway != nil {
		errs = append(errs, s.gateway.Stop(10*time.Second))
	}
	for _, n := range s.nodes {
		errs = append(errs, n.Stop(10*time.Second))
	}
	return errors.Join(errs...)
}
