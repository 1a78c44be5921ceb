package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"temper/sandbox/httpapi"
)

// Sources are called at each scrape; nil sources show nothing. Each returns at once and is
// safe for concurrent use.
type Sources struct {
	Load     func() httpapi.Load
	Zygotes  func() Zygotes
	Sessions func() Sessions
	Nodes    func() []Node
	Router   func() Router
	// Layers reports for each isolation layer whether it holds.
	Layers map[string]bool
	// Build is the version of the program.
	Build string
}

// Zygotes is the state of the warm interpreters of a node.
type Zygotes struct {
	Alive  int
	Deaths int64
}

// Sessions is the state of the kernels of a node.
type Sessions struct {
	Live  int // kernels that hold their variables
	Known int // sessions that can continue, with or without a kernel
}

// Node is a node as its gateway sees it.
type Node struct {
	Name     string
	Up       bool
	Slots    int
	InFlight int
	Retries  int64 // attempts that ended without an answer and were repeated
	Deaths   int64 // connections to it that broke
}

// Router is the state of a gateway as a whole.
type Router struct {
	WaitingByRun map[string]int
	Overloads    int64 // calls that were not admitted
	Bytes        int64 // bytes of the calls inside
	MaxBytes     int64
}

// series is a metric that a source provides.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc("rl_sandbox_"+name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc("rl_sandbox_"+name, help, labels, nil), prometheus.CounterValue}
}

// sink sends values of series.
type sink chan<- prometheus.Metric

func (s sink) send(to series, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(to.desc, to.kind, value, labels...)
	if err != nil { // a label that is not UTF-8
		m = prometheus.NewInvalidMetric(to.desc, err)
	}
	s <- m
}

// snapshot implements prometheus.Collector over the sources. It is an unchecked collector:
// the sources decide which series exist.
type snapshot struct{ sources Sources }

// Describe implements prometheus.Collector.
func (*snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *snapshot) Collect(ch chan<- prometheus.Metric) {
	out := sink(ch)
	out.send(gauge("build_info", "Constant 1; the label names the program.", "build"), 1, s.sources.Build)
	for layer, on := range s.sources.Layers {
		out.send(gauge("layer_on", "1 when the isolation layer holds.", "layer"), flag(on), layer)
	}
	if read := s.sources.Load; read != nil {
		out.load(read())
	}
	if read := s.sources.Zygotes; read != nil {
		z := read()
		out.send(gauge("zygotes", "Warm interpreters that are alive."), float64(z.Alive))
		out.send(counter("zygote_deaths_total", "Warm interpreters that died and were replaced."), float64(z.Deaths))
	}
	if read := s.sources.Sessions; read != nil {
		n := read()
		out.send(gauge("sessions_live", "Sessions with a kernel."), float64(n.Live))
		out.send(gauge("sessions_known", "Sessions that can go on, with a kernel or by replay."), float64(n.Known))
	}
	if read := s.sources.Nodes; read != nil {
		out.nodes(read())
	}
	if read := s.sources.Router; read != nil {
		out.router(read())
	}
}

func (s sink) load(n httpapi.Load) {
	s.send(gauge("slots", "Programs that may run at a time."), float64(n.Slots))
	s.send(gauge("slots_busy", "Programs that run."), float64(n.Busy))
	s.send(gauge("queue_calls", "Calls that wait for a slot."), float64(n.Waiting))
	s.send(gauge("queue_limit_calls", "Calls that may wait; more are refused as overloaded."), float64(n.Queue))
	s.send(gauge("draining", "1 when new calls are refused because the process ends."), flag(n.Draining))
}

func (s sink) nodes(nodes []Node) {
	for _, n := range nodes {
		name := strings.ToValidUTF8(n.Name, "?")
		s.send(gauge("node_up", "1 when the gateway has a stream to the node.", "node"), flag(n.Up), name)
		s.send(gauge("node_slots", "Slots that the node offers.", "node"), float64(n.Slots), name)
		s.send(gauge("node_calls_in_flight", "Calls that the gateway has given to the node.", "node"), float64(n.InFlight), name)
		s.send(counter("node_retries_total", "Attempts that the node left without an answer and that were made again.", "node"), float64(n.Retries), name)
		s.send(counter("node_deaths_total", "Connections to the node that broke.", "node"), float64(n.Deaths), name)
	}
}

func (s sink) router(r Router) {
	for run, n := range topRuns(r.WaitingByRun) {
		s.send(gauge("queue_run_calls", "Calls that wait, of the runs with most; the rest are other.", "run"), float64(n), run)
	}
	s.send(counter("overloads_total", "Calls that the gateway did not admit."), float64(r.Overloads))
	s.send(gauge("queue_bytes", "Bytes of the calls inside."), float64(r.Bytes))
	s.send(gauge("queue_limit_bytes", "Bytes that the calls inside may have; more are refused as overloaded."), float64(r.MaxBytes))
}

// maxRuns bounds the values of the label run.
const maxRuns = 20

// otherRuns is the label of the runs beyond maxRuns; noRun labels calls without a run.
const (
	otherRuns = "other"
	noRun     = "none"
)

// topRuns keeps the runs with the most waiting calls and adds up the others.
func topRuns(waiting map[string]int) map[string]int {
	names := make([]string, 0, len(waiting))
	for name := range waiting {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(waiting[b], waiting[a]), strings.Compare(a, b))
	})
	top := make(map[string]int, min(len(names), maxRuns)+1)
	for i, name := range names {
		n := waiting[name]
		switch {
		case i >= maxRuns:
			name = otherRuns
		case name == "":
			name = noRun
		}
		top[label(name)] += n // cut names may become equal
	}
	return top
}

// label makes a caller's name valid as a label.
func label(name string) string { return strings.ToValidUTF8(cut(name), "?") }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
