package workers

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/series"
	"temper/trainer/device"
)

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
