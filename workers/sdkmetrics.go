package workers

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

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
