package workers

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/client"

	"temper/internal/proc/buildinfo"
	"temper/internal/series"
	"temper/trainer/device"
)

// PathMetrics is where a role serves its series.
const PathMetrics = "/metrics"

// newMetrics is a registry with what every process has: its build, the Go runtime,
// processor time, memory and descriptors.
func newMetrics(role string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rl_role_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"role": role, "build": buildinfo.Build()},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func metricsHandler(registry *prometheus.Registry) map[string]http.Handler {
	return map[string]http.Handler{"GET " + PathMetrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		ErrorHandling:       promhttp.ContinueOnError, // one bad series must not hide the others
	})}
}

// sdkLabels are the tags of the SDK that the series keep, in this order. The others,
// such as the namespace, are the same in one process.
var sdkLabels = []string{"task_queue", "worker_type", "poller_type", "operation", "activity_type", "workflow_type"}

// sdkMetrics shows what the Temporal SDK counts: polls, slots, latencies, failures.
type sdkMetrics struct {
	registry prometheus.Registerer
	values   [6]string // of sdkLabels
}

var _ client.MetricsHandler = sdkMetrics{}

// WithTags implements client.MetricsHandler.
func (m sdkMetrics) WithTags(tags map[string]string) client.MetricsHandler {
	for i, label := range sdkLabels {
		if v := tags[label]; v != "" && v != "none" {
			m.values[i] = v
		}
	}
	return m
}

// Counter implements client.MetricsHandler.
func (m sdkMetrics) Counter(name string) client.MetricsCounter {
	c := registered(m.registry, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: withSuffix(name, "_total"), Help: sdkHelp,
	}, sdkLabels)).WithLabelValues(m.values[:]...)
	return sdkCounter{c}
}

// Gauge implements client.MetricsHandler.
func (m sdkMetrics) Gauge(name string) client.MetricsGauge {
	g := registered(m.registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: sdkHelp}, sdkLabels)).
		WithLabelValues(m.values[:]...)
	return sdkGauge{g}
}

// Timer implements client.MetricsHandler.
func (m sdkMetrics) Timer(name string) client.MetricsTimer {
	h := registered(m.registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: withSuffix(name, "_seconds"), Help: sdkHelp, Buckets: []float64{.005, .02, .1, .5, 2, 10, 60, 600, 3600},
	}, sdkLabels)).WithLabelValues(m.values[:]...)
	return sdkTimer{h}
}

const sdkHelp = "Of the Temporal SDK; see its documentation."

func withSuffix(name, suffix string) string {
	if strings.HasSuffix(name, suffix) {
		return name
	}
	return name + suffix
}

// registered is the collector, or the one of the same name that was there before:
// roles in one process share their series.
func registered[C prometheus.Collector](r prometheus.Registerer, c C) C {
	var exists prometheus.AlreadyRegisteredError
	if err := r.Register(c); errors.As(err, &exists) {
		if same, ok := exists.ExistingCollector.(C); ok {
			return same
		}
	}
	return c
}

type sdkCounter struct{ prometheus.Counter }

// Inc implements client.MetricsCounter.
func (c sdkCounter) Inc(by int64) { c.Add(float64(max(0, by))) }

type sdkGauge struct{ prometheus.Gauge }

// Update implements client.MetricsGauge.
func (g sdkGauge) Update(v float64) { g.Set(v) }

type sdkTimer struct{ prometheus.Observer }

// Record implements client.MetricsTimer.
func (t sdkTimer) Record(d time.Duration) { t.Observe(d.Seconds()) }

// graphsOf counts what is compiled for a backend; nil for one that compiles nothing worth
// counting.
func graphsOf(backend string) func() series.Graphs {
	if !strings.HasPrefix(backend, "xla:") {
		return nil
	}
	return func() series.Graphs {
		n := device.Graphs()
		return series.Graphs{Programs: n.Programs, Compiled: n.Compiled, Loaded: n.Loaded, Compiling: n.Compiling}
	}
}

// graphMetrics shows what the XLA plugins of a process compile.
type graphMetrics struct{}

var (
	graphPrograms = prometheus.NewDesc("rl_xla_programs", "Programs that plugins have compiled or loaded in this process, those that differ.", nil, nil)
	graphCalls    = prometheus.NewDesc("rl_xla_compilations_total", "Programs that plugins were given, by what became of them: compiled, loaded from disk, or refused there and compiled.", []string{"end"}, nil)
	graphSeconds  = prometheus.NewDesc("rl_xla_compilation_seconds_total", "Time of compiling or loading, summed over programs.", []string{"end"}, nil)
)

// Describe implements prometheus.Collector.
func (graphMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- graphPrograms
	to <- graphCalls
	to <- graphSeconds
}

// Collect implements prometheus.Collector.
func (graphMetrics) Collect(to chan<- prometheus.Metric) {
	n := device.Graphs()
	counter := func(d *prometheus.Desc, x float64, end string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, x, end)
	}
	to <- prometheus.MustNewConstMetric(graphPrograms, prometheus.GaugeValue, float64(n.Programs))
	counter(graphCalls, float64(n.Compiled), "compiled")
	counter(graphCalls, float64(n.Loaded), "loaded")
	counter(graphCalls, float64(n.Refused), "refused")
	counter(graphSeconds, n.Compiling.Seconds(), "compiled")
	counter(graphSeconds, n.Loading.Seconds(), "loaded")
}
