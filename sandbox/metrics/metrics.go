// Package metrics counts the calls of a sandbox for Prometheus and for the log. It
// owns the names of the series and the line of the log for one call; it neither
// runs nor changes a call. Nodes and gateways use the same names for the same
// things.
//
// Invariant: no code, input or output of a program reaches a series or the log.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"temper/sandbox"
)

// Path is where a node and a gateway serve their series.
const Path = "/metrics"

// Outcomes of a call without a Result; they share the label with sandbox.Status.
const (
	statusOverloaded  = "overloaded"
	statusUnavailable = "unavailable"
	statusDeadline    = "deadline"
	statusCancelled   = "cancelled"
	statusSessionLost = "session_lost"
)

// statuses returns all values of the label status.
func statuses() []string {
	return []string{
		string(sandbox.StatusOK), string(sandbox.StatusError), string(sandbox.StatusTimeLimit),
		string(sandbox.StatusMemoryLimit), string(sandbox.StatusOutputLimit), string(sandbox.StatusKilled),
		string(sandbox.StatusRefused), string(sandbox.StatusInternal),
		statusOverloaded, statusUnavailable, statusDeadline, statusCancelled, statusSessionLost,
	}
}

// buckets reach from a trivial call on an idle node to the longest wall limit.
func buckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
}

// Recorder holds the series of one process. It is safe for concurrent use.
type Recorder struct {
	registry  *prometheus.Registry
	outcomes  map[string]*outcome // complete after New, then only read
	inFlight  prometheus.Gauge
	truncated map[string]prometheus.Counter
	calls     callLog
}

// outcome holds the series of one status, so that a call needs no lookup by labels.
type outcome struct {
	calls                   prometheus.Counter
	total, queue, wall, cpu prometheus.Observer
}

// New returns a Recorder that also reads the sources at each scrape. The logger gets a line
// for some of the calls at debug level; nil discards them.
func New(sources Sources, logger *slog.Logger) *Recorder {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r := &Recorder{
		registry: prometheus.NewRegistry(),
		outcomes: make(map[string]*outcome), truncated: make(map[string]prometheus.Counter),
		calls: callLog{logger: logger},
	}
	r.addCalls()
	r.registry.MustRegister(
		&snapshot{sources: sources},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

func (r *Recorder) addCalls() {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rl_sandbox_calls_total", Help: "Calls answered, by outcome.",
	}, []string{"status"})
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, []string{"status"})
		r.registry.MustRegister(v)
		return v
	}
	total := histogram("rl_sandbox_call_seconds", "From the arrival of a call to its answer.")
	queue := histogram("rl_sandbox_queue_seconds", "Waiting for a slot, of calls that ran.")
	wall := histogram("rl_sandbox_wall_seconds", "Wall time of programs.")
	cpu := histogram("rl_sandbox_cpu_seconds", "Processor time of programs.")
	for _, s := range statuses() {
		r.outcomes[s] = &outcome{
			calls: calls.WithLabelValues(s), total: total.WithLabelValues(s), queue: queue.WithLabelValues(s),
			wall: wall.WithLabelValues(s), cpu: cpu.WithLabelValues(s),
		}
	}
	truncated := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rl_sandbox_truncated_outputs_total", Help: "Outputs of programs that were cut in the middle, by stream.",
	}, []string{"stream"})
	for _, s := range []string{"stdout", "stderr"} {
		r.truncated[s] = truncated.WithLabelValues(s)
	}
	r.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rl_sandbox_calls_in_flight", Help: "Calls that have arrived and are not answered, waiting or running.",
	})
	r.registry.MustRegister(calls, truncated, r.inFlight)
}

// Handler serves the series in the text format of Prometheus.
func (r *Recorder) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		ErrorHandling:       promhttp.ContinueOnError, // one bad series must not hide the others
	})
}

// Wrap returns an executor that records every call of exec.
func Wrap(exec sandbox.Executor, r *Recorder) sandbox.Executor {
	return &recorded{exec: exec, recorder: r}
}

type recorded struct {
	exec     sandbox.Executor
	recorder *Recorder
}

// Execute implements sandbox.Executor. Calls wait in this frame, and a gateway holds many:
// the named results save a copy on the stack.
func (e *recorded) Execute(ctx context.Context, req sandbox.Request) (res sandbox.Result, err error) {
	e.recorder.inFlight.Inc()
	defer e.recorder.inFlight.Dec()
	arrived := time.Now()
	res, err = e.exec.Execute(ctx, req)
	e.recorder.observe(ctx, &req, &res, err, time.Since(arrived))
	return res, err
}

// observe counts one call that took total.
func (r *Recorder) observe(ctx context.Context, req *sandbox.Request, res *sandbox.Result, err error, total time.Duration) {
	status := statusOf(res, err)
	o, known := r.outcomes[status]
	if !known {
		o = r.outcomes[string(sandbox.StatusInternal)]
	}
	o.calls.Inc()
	o.total.Observe(total.Seconds())
	if err == nil && res.Status != sandbox.StatusRefused {
		o.queue.Observe(res.Usage.Queue.Seconds())
		o.wall.Observe(res.Usage.Wall.Seconds())
		o.cpu.Observe(res.Usage.CPU.Seconds())
	}
	if strings.Contains(res.Stdout, truncationMark) {
		r.truncated["stdout"].Inc()
	}
	if strings.Contains(res.Stderr, truncationMark) {
		r.truncated["stderr"].Inc()
	}
	r.calls.write(ctx, req, res, status, total)
}

func statusOf(res *sandbox.Result, err error) string {
	switch {
	case err == nil:
		return string(res.Status)
	case errors.Is(err, sandbox.ErrOverloaded):
		return statusOverloaded
	case errors.Is(err, sandbox.ErrSessionLost):
		return statusSessionLost
	case errors.Is(err, context.DeadlineExceeded):
		return statusDeadline
	case errors.Is(err, context.Canceled):
		return statusCancelled
	default:
		return statusUnavailable
	}
}

// truncationMark is the text that a node puts where it cuts an output. A program that
// prints it is counted too, which does no harm.
const truncationMark = "...(truncated)..."
