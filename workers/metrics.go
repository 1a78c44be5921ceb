package workers

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"temper/internal/proc/buildinfo"
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
