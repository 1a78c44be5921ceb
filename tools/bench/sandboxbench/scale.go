package sandboxbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// ScaleConfig describes a burst through a gateway. Zero fields take the stated
// defaults; Binary has none.
type ScaleConfig struct {
	Binary string // that has the roles sandbox and gateway
	Python string // the role's own choice
	Calls  int    // 45,000, all submitted at once
	Nodes  int    // 3 at the start
	Slots  int    // of each node: 64
	Queue  int    // of each node: 1,024
	// KillAfter and AddAfter are the shares of the calls after whose end one node is
	// killed and one is added: a third, and half.
	KillAfter, AddAfter float64
	// MemoryMax caps the Go heap of every process, and with Cgroups, the folder of a
	// memory controller, all memory of each node with its programs: 2 GiB.
	MemoryMax int64
	Cgroups   string
	Timeout   time.Duration // of the whole: 30 minutes
	// Note, when set, is told what happens.
	Note func(text string)
}

// ScaleReport is what became of the burst.
type ScaleReport struct {
	loadgen.Figures
	// Duplicated counts second answers to a call, Unasked answers to none; Foreign
	// calls got an answer that was not theirs.
	Duplicated int      `json:"duplicated"`
	Unasked    int      `json:"unasked"`
	Foreign    int      `json:"foreign"`
	Members    []Member `json:"members"` // the gateway first
}

// Member is a process of the burst and the most memory it has held.
type Member struct {
	Name   string `json:"name"`
	Killed bool   `json:"killed,omitempty"`
	Added  bool   `json:"added,omitempty"`
	// PeakRSS is that of the process itself; PeakTree is the largest sum, looked at
	// twice a second, of the proportional memory of the process and all it started;
	// PeakCgroup is the kernel's count for the whole cgroup, 0 without one.
	PeakRSS    int64 `json:"peak_rss_bytes"`
	PeakTree   int64 `json:"peak_tree_bytes"`
	PeakCgroup int64 `json:"peak_cgroup_bytes,omitempty"`
}

// Exact is true when every call was answered once, with its own answer.
func (r ScaleReport) Exact() bool {
	return r.Failed == 0 && r.Duplicated == 0 && r.Unasked == 0
}

func (c ScaleConfig) withDefaults() ScaleConfig {
	orInt(&c.Calls, 45000)
	orInt(&c.Nodes, 3)
	orInt(&c.Slots, 64)
	orInt(&c.Queue, 1024)
	if c.KillAfter == 0 {
		c.KillAfter = 1. / 3
	}
	if c.AddAfter == 0 {
		c.AddAfter = .5
	}
	if c.MemoryMax == 0 {
		c.MemoryMax = 2 << 30
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Minute
	}
	if c.Note == nil {
		c.Note = func(string) {}
	}
	return c
}

func orInt(field *int, fallback int) {
	if *field == 0 {
		*field = fallback
	}
}

// scale is a running burst.
type scale struct {
	cfg     ScaleConfig
	gateway *Child
	nodes   []*Child

	mu      sync.Mutex
	members map[*Child]*Member
	order   []*Child
}

// Scale starts a gateway and nodes, submits all calls at once, kills a node and
// adds one on the way, and says what came of it.
func Scale(ctx context.Context, cfg ScaleConfig) (report ScaleReport, err error) {
	s := &scale{cfg: cfg.withDefaults(), members: map[*Child]*Member{}}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.start(ctx); err != nil {
		return report, err
	}
	target, err := loadgen.Connect(s.gateway.Address, loadgen.Options{API: loadgen.APIStream})
	if err != nil {
		return report, err
	}
	defer target.Close()
	watch, stopWatch := context.WithCancel(ctx)
	var owners sync.WaitGroup
	owners.Go(func() { s.watch(watch) })
	trouble := &trouble{at: []int{int(s.cfg.KillAfter * float64(s.cfg.Calls)), int(s.cfg.AddAfter * float64(s.cfg.Calls))}}
	events := make(chan int, len(trouble.at))
	var eventErr error
	owners.Go(func() { eventErr = s.disturb(watch, events) })
	s.cfg.Note(fmt.Sprintf("%d calls submitted", s.cfg.Calls))
	prefix := fmt.Sprintf("scale-%d", time.Now().UnixNano())
	report.Figures, err = loadgen.Run(ctx, target, loadgen.Load{
		Concurrency: s.cfg.Calls, Calls: s.cfg.Calls, Mix: loadgen.Own(prefix), Prefix: prefix, Timeout: s.cfg.Timeout,
		Progress: func(ended int) { trouble.look(ended, events) },
	})
	stopWatch()
	owners.Wait()
	report.Foreign = report.Kinds[loadgen.KindForeign] + report.Kinds[loadgen.KindOutput]
	if a, ok := target.(loadgen.Auditor); ok {
		report.Duplicated, report.Unasked = a.Surplus()
	}
	report.Members = s.peaks()
	return report, errors.Join(err, eventErr)
}

// trouble says when the next event is due.
type trouble struct {
	mu   sync.Mutex
	at   []int
	next int
}

func (t *trouble) look(ended int, events chan<- int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next < len(t.at) && ended >= t.at[t.next] {
		events <- t.next // has room for all
		t.next++
	}
}

func (s *scale) start(ctx context.Context) error {
	addresses := make([]string, s.cfg.Nodes)
	for i := range s.cfg.Nodes {
		node, err := s.node(ctx, i+1)
		if err != nil {
			return err
		}
		addresses[i] = node.Address
	}
	args := []string{"gateway", "--listen", "127.0.0.1:0"}
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

func (s *scale) env() []string {
	return []string{"GOMEMLIMIT=" + strconv.FormatInt(s.cfg.MemoryMax, 10)}
}

// node starts the node of that number.
func (s *scale) node(ctx context.Context, number int) (*Child, error) {
	cfg := ChildConfig{Name: "node " + strconv.Itoa(number), Env: s.env(), Args: []string{
		"sandbox", "--listen", "127.0.0.1:0", "--zygotes", "1",
		"--slots", strconv.Itoa(s.cfg.Slots), "--queue", strconv.Itoa(s.cfg.Queue),
	}}
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

// disturb kills a node at the first event and adds one at the second.
func (s *scale) disturb(ctx context.Context, events <-chan int) error {
	var renew string
	for range 2 {
		var event int
		select {
		case event = <-events:
		case <-ctx.Done():
			return nil
		}
		if event == 0 {
			victim := s.nodes[0]
			s.mu.Lock()
			s.members[victim].Killed = true
			s.mu.Unlock()
			s.cfg.Note("kill -9 " + victim.Name)
			if err := victim.Kill(); err != nil {
				return fmt.Errorf("kill %s: %w", victim.Name, err)
			}
			continue
		}
		node, err := s.node(ctx, s.cfg.Nodes+1)
		if err == nil {
			err = join(ctx, s.gateway.Address, node.Address)
		}
		if err != nil && ctx.Err() != nil {
			s.cfg.Note("the burst was over before a node could join")
			return nil
		}
		if err != nil {
			return fmt.Errorf("add a node: %w", err)
		}
		s.cfg.Note(node.Name + " joined")
		renew = node.Address
	}
	for ctx.Err() == nil { // until the burst is over: a node that joined has a lease
		loadgen.Rest(ctx, 5*time.Second)
		if err := join(ctx, s.gateway.Address, renew); err != nil && ctx.Err() == nil {
			return fmt.Errorf("renew the lease of a node: %w", err)
		}
	}
	return nil
}

// join tells the gateway of a node.
func join(ctx context.Context, gateway, node string) error {
	base, dial, err := loadgen.ParseAddress(gateway)
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

// watch looks at the memory of all members until ctx ends.
func (s *scale) watch(ctx context.Context) {
	for ctx.Err() == nil {
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
		loadgen.Rest(ctx, 500*time.Millisecond)
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
