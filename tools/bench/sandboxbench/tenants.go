package sandboxbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"temper/tools/bench/loadgen"
)

// TenantsConfig describes a soak by tenants: runs that use the same ids and names of
// sessions at the same time. Zero fields take the stated defaults; Connect and PID
// have none.
type TenantsConfig struct {
	// Connect reaches the service by one of its interfaces; every tenant has its own.
	Connect func(api loadgen.API) (loadgen.Target, error)
	// CloseSession ends a session of a run.
	CloseSession func(ctx context.Context, run, name string) (bool, error)
	PID          int           // of the service
	Tenants      int           // 2
	Calls        int           // of all tenants: 200,000
	Hostile      float64       // share of the calls: 0.05
	Concurrency  int           // units of each tenant in flight, of 1 to 16 calls each: 8
	Seed         uint64        // deals the units
	Parts        int           // into which the calls are cut, the service looked at after each: 10
	Timeout      time.Duration // of one try: 2 minutes
	Pause        time.Duration // after the first try without an outcome, longer after the next ones: 100 ms
	// Rest is how long the service is left alone before its memory is compared; it has
	// to be longer than the time for which it keeps answers. Zero compares no memory.
	Rest time.Duration
	// From is the report of a soak that was stopped; this one goes on with it.
	From *TenantsReport
	// Note, when set, is called with each part when it ends, and before the first one.
	Note func(TenantsReport, Inventory)
}

// TenantsReport is what became of the calls of all tenants.
type TenantsReport struct {
	Seed    uint64 `json:"seed"`
	Tenants int    `json:"tenants"`
	Units   int    `json:"units"` // ended, of each tenant
	Calls   int    `json:"calls"`
	Honest  int    `json:"honest"`
	Hostile int    `json:"hostile"`
	// Sessions and Batches are units; Cells are the calls of sessions.
	Sessions int `json:"sessions"`
	Cells    int `json:"cells"`
	Batches  int `json:"batches"`
	// Lost calls have no answer after all tries. Wrong are honest calls with another
	// answer than their own, Blamed those with another status than ok. Doubled are
	// second answers to a call, Unasked answers to no call.
	Lost    int `json:"lost"`
	Wrong   int `json:"wrong"`
	Blamed  int `json:"blamed"`
	Doubled int `json:"doubled"`
	Unasked int `json:"unasked"`
	// Retried counts answers that say nothing of the program, and none at all, by
	// kind; after them the call was sent again.
	Retried map[string]int `json:"retried"`
	// Ends counts the hostile calls by what they ended with.
	Ends map[string]int `json:"ends"`
	// Slowest is the honest call that took longest, with its tries, and SlowestCall what it was.
	Slowest     time.Duration `json:"slowest_ns"`
	SlowestCall string        `json:"slowest_call"`
	Busy        time.Duration `json:"busy_ns"`
	Legs        []TenantsLeg  `json:"legs"`
	// Failures are the first calls that are lost, wrong or blamed.
	Failures []string `json:"failures,omitempty"`
}

// TenantsLeg is a part of a soak between two stops.
type TenantsLeg struct {
	Calls  int       `json:"calls"`
	Before Inventory `json:"before"` // warm
	After  Inventory `json:"after"`
	Growth []string  `json:"growth,omitempty"`
	// Latencies of honest calls, with their tries.
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Survivors []string      `json:"survivors,omitempty"` // once the service has ended
}

// Exact is true when each call had its own answer, once, and nothing was left.
func (r TenantsReport) Exact() bool {
	for _, leg := range r.Legs {
		if len(leg.Growth)+len(leg.Survivors) > 0 {
			return false
		}
	}
	return r.Lost+r.Wrong+r.Blamed+r.Doubled+r.Unasked == 0
}

func (c TenantsConfig) withDefaults() TenantsConfig {
	orInt(&c.Tenants, 2)
	orInt(&c.Calls, 200000)
	orInt(&c.Concurrency, 8)
	orInt(&c.Parts, tenths)
	if c.Hostile == 0 {
		c.Hostile = 0.05
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	if c.Pause == 0 {
		c.Pause = 100 * time.Millisecond
	}
	if c.Note == nil {
		c.Note = func(TenantsReport, Inventory) {}
	}
	return c
}

// heapRoom is how much larger the node may stay: a heap that held answers is not given
// back at once, nor are the tables that grew with it.
const heapRoom = 48 << 20

// tenants is a running soak.
type tenants struct {
	cfg     TenantsConfig
	dealer  dealer
	targets []tenantTargets
	leg     int

	mu     sync.Mutex
	report TenantsReport
	open   []session // that their tenant has not closed
	took   []time.Duration
}

// session is one by its names.
type session struct{ run, name string }

// tenantTargets are the connections of one tenant.
type tenantTargets struct {
	name          string
	stream, batch loadgen.Target
}

// SoakTenants makes the calls, or those that are left of a soak that was stopped.
// When ctx ends it lets the calls in flight end, and returns what can be gone on with.
func SoakTenants(ctx context.Context, cfg TenantsConfig) (TenantsReport, error) {
	cfg = cfg.withDefaults()
	s := &tenants{cfg: cfg, report: TenantsReport{Seed: cfg.Seed, Tenants: cfg.Tenants, Retried: map[string]int{}, Ends: map[string]int{}}}
	if cfg.From != nil {
		s.report = *cfg.From
		if s.report.Seed != cfg.Seed || s.report.Tenants != cfg.Tenants {
			return s.report, fmt.Errorf("the soak to go on with has seed %d and %d tenants, this one %d and %d", s.report.Seed, s.report.Tenants, cfg.Seed, cfg.Tenants)
		}
	}
	s.dealer, s.leg = dealer{seed: cfg.Seed, hostile: cfg.Hostile}, len(s.report.Legs)
	if err := s.connect(); err != nil {
		return s.report, err
	}
	defer s.close()
	survey := newSurveyor(cfg.PID)
	survey.alone = true
	warm := loadgen.Load{Concurrency: 8, Calls: 200, Mix: loadgen.Only(loadgen.Trivial()), Timeout: cfg.Timeout, Prefix: fmt.Sprintf("warm-%d", s.leg)}
	if _, err := loadgen.Run(ctx, s.targets[0].stream, warm); err != nil {
		return s.report, err
	}
	leg := TenantsLeg{Calls: s.report.Calls}
	var err error
	if leg.Before, err = survey.settled(ctx, Inventory{}); err != nil {
		return s.report, err
	}
	cfg.Note(s.report, leg.Before)
	err = s.parts(ctx, survey)
	// A soak that was stopped still looks at what it leaves.
	err = errors.Join(err, s.closeSessions(context.WithoutCancel(ctx)))
	if cfg.Rest > 0 {
		loadgen.Rest(ctx, cfg.Rest)
		last := loadgen.Call{ID: fmt.Sprintf("last-%d", s.leg), Program: loadgen.Trivial()} // old answers are forgotten when a call comes
		s.targets[0].stream.Do(ctx, []loadgen.Call{last})
	}
	after, surveyErr := survey.settled(context.WithoutCancel(ctx), leg.Before)
	leg.After, leg.Calls = after, s.report.Calls-leg.Calls
	leg.Growth = growth(leg.Before.own(), after.own(), false)
	if cfg.Rest > 0 {
		was := leg.Before.own()
		was.NodeRSS += heapRoom
		leg.Growth = append(leg.Growth, growth(was, after.own(), true)...)
	}
	leg.latencies(s.took)
	s.report.Legs = append(s.report.Legs, leg)
	s.surplus()
	return s.report, errors.Join(err, surveyErr)
}

func (s *tenants) connect() error {
	for i := range s.cfg.Tenants {
		t := tenantTargets{name: fmt.Sprintf("tenant-%d", i)}
		var err error
		if t.stream, err = s.cfg.Connect(loadgen.APIStream); err != nil {
			return err
		}
		s.targets = append(s.targets, t)
		if s.targets[i].batch, err = s.cfg.Connect(loadgen.APIBatch); err != nil {
			return err
		}
	}
	return nil
}

func (s *tenants) close() {
	for _, t := range s.targets {
		t.stream.Close()
		t.batch.Close()
	}
}

// closeSessions ends those that are left. The service may have dropped some.
func (s *tenants) closeSessions(ctx context.Context) error {
	for _, o := range s.open {
		if _, err := s.cfg.CloseSession(ctx, o.run, o.name); err != nil {
			return fmt.Errorf("close session %s of %s: %w", o.name, o.run, err)
		}
	}
	s.open = nil
	return nil
}

// latencies fills in what follows from the times of the honest calls.
func (l *TenantsLeg) latencies(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	l.P50, l.P99 = took[len(took)/2], took[len(took)*99/100]
}

// surplus adds the answers that nobody waited for.
func (s *tenants) surplus() {
	for _, t := range s.targets {
		if a, ok := t.stream.(loadgen.Auditor); ok {
			doubled, unasked := a.Surplus()
			s.report.Doubled += doubled
			s.report.Unasked += unasked
		}
	}
}

// parts runs the calls, and looks at the service after each part.
func (s *tenants) parts(ctx context.Context, survey *surveyor) error {
	each := max(1, s.cfg.Calls/s.cfg.Parts)
	for s.report.Calls < s.cfg.Calls && ctx.Err() == nil {
		start := time.Now()
		s.part(ctx, min(s.report.Calls+each, s.cfg.Calls))
		s.report.Busy += time.Since(start)
		inv, err := survey.survey()
		if err != nil {
			return err
		}
		s.cfg.Note(s.report, inv)
	}
	return nil
}

// part deals units until so many calls are made. All tenants play the same unit at
// the same time; a place takes the next one when all have ended it.
func (s *tenants) part(ctx context.Context, until int) {
	var places sync.WaitGroup
	var deal sync.Mutex
	planned, next := s.report.Calls, s.report.Units
	for range s.cfg.Concurrency {
		places.Go(func() {
			for ctx.Err() == nil {
				deal.Lock()
				if planned >= until {
					deal.Unlock()
					return
				}
				u := s.dealer.unit(next)
				next, planned = next+1, planned+s.cfg.Tenants*len(u.calls)
				deal.Unlock()
				var all sync.WaitGroup
				for _, t := range s.targets {
					all.Go(func() { s.play(context.WithoutCancel(ctx), t, u) })
				}
				all.Wait()
				s.count(u)
			}
		})
	}
	places.Wait()
}

// count adds a unit that all tenants have ended. Units are dealt in order and each
// one that was dealt is played to its end, so that their number says where to go on.
func (s *tenants) count(u unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, n := &s.report, s.cfg.Tenants
	r.Units++
	r.Calls += n * len(u.calls)
	for _, c := range u.calls {
		if c.attack != "" {
			r.Hostile += n
		} else {
			r.Honest += n
		}
	}
	switch u.kind {
	case unitSession, unitAbuse:
		r.Sessions += n
		r.Cells += n * len(u.calls)
	case unitBatch:
		r.Batches += n
	case unitSingle:
	}
}

// fail notes what became of a call that failed.
func (s *tenants) fail(count *int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if len(s.report.Failures) < 40 && !slices.Contains(s.report.Failures, text) {
		s.report.Failures = append(s.report.Failures, text)
	}
}
