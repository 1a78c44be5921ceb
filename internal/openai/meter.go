package openai

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/inference"
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

// watch exports what the engine says of itself, where it does.
func (m *meter) watch(registry prometheus.Registerer, model Model) {
	engine, ok := model.Engine.(inference.Reporter)
	if !ok || registry == nil {
		return
	}
	status := func() inference.Status {
		st, _ := engine.Status(context.Background()) // an engine of this process always answers
		return st
	}
	labels := prometheus.Labels{"model_name": model.Name}
	gauge := func(name, help string, of func(inference.Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return of(status()) })
	}
	registry.MustRegister(
		gauge("vllm:num_requests_waiting", "Choices that wait for the engine.", func(s inference.Status) float64 { return float64(s.Waiting) }),
		gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that is used, of 1.", func(s inference.Status) float64 {
			if s.Capacity <= 0 {
				return 0
			}
			return float64(s.Used) / float64(s.Capacity)
		}),
	)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vllm:cache_config_info", Help: "Tokens of the KV cache: num_gpu_blocks of block_size.",
		ConstLabels: prometheus.Labels{"model_name": model.Name, "block_size": "1", "num_gpu_blocks": strconv.FormatInt(status().Capacity, 10)},
	})
	info.Set(1)
	registry.MustRegister(info)
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
