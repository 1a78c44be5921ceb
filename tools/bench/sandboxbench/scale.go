package sandboxbench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"temper/tools/bench/loadgen"
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
	// One node is killed when the share KillAfter of the calls has ended, and one
	// is added at AddAfter: a third, and half.
	KillAfter, AddAfter float64
	// MemoryMax caps the Go heap of every process, and with Cgroups, the folder of a
	// memory controller, all memory of each node with its programs: 2 GiB.
	MemoryMax int64
	Cgroups   string
	Timeout   time.Duration // of the whole: 30 minutes
	// Note, when set, is called with what happens.
	Note func(text string)
}

// ScaleReport says what became of the burst.
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
	cfg       ScaleConfig
	nodeToken string
	gateway   *Child
	nodes     []*Child

	mu      sync.Mutex
	members map[*Child]*Member
	order   []*Child
}

// Scale starts a gateway and nodes, submits all calls at once, kills a node and
// adds one on the way, and reports what became of the calls.
func Scale(ctx context.Context, cfg ScaleConfig) (report ScaleReport, err error) {
	s := &scale{cfg: cfg.withDefaults(), nodeToken: rand.Text(), members: map[*Child]*Member{}}
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
			err = s.join(ctx, node.Address)
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
		if err := s.join(ctx, renew); err != nil && ctx.Err() == nil {
			return fmt.Errorf("renew the lease of a node: %w", err)
		}
	}
	return nil
}
