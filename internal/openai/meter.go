package openai

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meter counts under the names of vLLM, so that its boards show this server.
type meter struct {
	running            prometheus.Gauge
	prompts, generated prometheus.Counter
	ended              *prometheus.CounterVec
	first, whole       prometheus.Histogram
}

func newMeter(registry prometheus.Registerer, model string) *meter {
	labels := prometheus.Labels{"model_name": model}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		})
	}
	m := &meter{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vllm:num_requests_running", Help: "Choices that are being sampled or wait for the engine.", ConstLabels: labels,
		}),
		prompts:   counter("vllm:prompt_tokens_total", "Tokens of prompts, once for each choice."),
		generated: counter("vllm:generation_tokens_total", "Tokens sampled."),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vllm:request_success_total", Help: "Choices that ended, by reason; abort for those that failed or whose client left.", ConstLabels: labels,
		}, []string{"finished_reason"}),
		first: histogram("vllm:time_to_first_token_seconds", "Time to the first tokens of a choice."),
		whole: histogram("vllm:e2e_request_latency_seconds", "Time of a choice."),
	}
	if registry != nil {
		registry.MustRegister(m.running, m.prompts, m.generated, m.ended, m.first, m.whole)
	}
	return m
}

// span is the sampling of one choice.
type span struct {
	m     *meter
	start time.Time
	begun bool
}

// begin counts a choice with a prompt of n tokens. The caller ends the span.
func (m *meter) begin(n int) *span {
	m.running.Inc()
	m.prompts.Add(float64(n))
	return &span{m: m, start: time.Now()}
}

// sampled counts n tokens.
func (sp *span) sampled(n int) {
	if !sp.begun {
		sp.begun = true
		sp.m.first.Observe(time.Since(sp.start).Seconds())
	}
	sp.m.generated.Add(float64(n))
}

// end counts why the choice ended.
func (sp *span) end(reason string) {
	sp.m.running.Dec()
	sp.m.ended.WithLabelValues(reason).Inc()
	sp.m.whole.Observe(time.Since(sp.start).Seconds())
}
