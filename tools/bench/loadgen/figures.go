// Package loadgen puts load on executors of code and says what became of each
// call. It owns the generator (a closed and an open loop, against any service that
// speaks one of the sandbox's interfaces or Code-Judge's), the programs, the
// judgement of answers, and a service's processor time. What to compare, and how
// to print it, belongs to others.
//
// Invariant: a figure counts calls that were answered as expected; any other call
// is wrong or lost, is named by its kind, and never improves a figure.
package loadgen

import (
	"math"
	"slices"
	"time"
)

// Figures are what a load saw.
type Figures struct {
	Calls int `json:"calls"`
	// Failed is Wrong + Lost; Failure is the first of them.
	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"`
	// Wrong calls were answered, but not as expected. Lost calls never got the
	// outcome of their program: no answer, or one in which the service gives up.
	Wrong int            `json:"wrong"`
	Lost  int            `json:"lost"`
	Kinds map[string]int `json:"kinds,omitempty"` // failed calls by kind
	// Resent counts repetitions: after a refusal that said when to come back, and with
	// Patience of calls without an outcome.
	Resent    int           `json:"resent"`
	Elapsed   time.Duration `json:"elapsed_ns"`
	PerSecond float64       `json:"per_second"` // good calls
	// Latencies of good calls, exact, with the queue: from the call, in an open
	// loop from the intended arrival, to the answer.
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
	// P99All counts failed calls too, with the time until they failed.
	P99All  time.Duration `json:"p99_all_ns"`
	Service time.Duration `json:"service_ns"` // mean wall time of the child alone
	// ServiceVariation is the squared coefficient of variation of the programs' own
	// processor time, which a queueing model needs; 0 when the service does not
	// report it.
	ServiceVariation float64 `json:"service_variation"`
	// CPU is the processor time of the whole service divided by the good calls, which
	// a busy machine does not inflate; zero when nobody measured it.
	CPU time.Duration `json:"cpu_ns"`
	// ClientCPU is that of the process that made the load.
	ClientCPU time.Duration `json:"client_cpu_ns"`
}

// record is what became of one call.
type record struct {
	took    time.Duration
	outcome Outcome
}

// figures sums up what became of all calls.
func figures(records []record, elapsed time.Duration) Figures {
	f := Figures{Calls: len(records), Elapsed: elapsed, Kinds: map[string]int{}}
	good, all := make([]time.Duration, 0, len(records)), make([]time.Duration, 0, len(records))
	var service, cpu, squares float64
	for _, r := range records {
		all = append(all, r.took)
		f.Resent += r.outcome.Resent
		if r.outcome.Class == Good {
			good = append(good, r.took)
			service += float64(r.outcome.Wall)
			cpu += float64(r.outcome.CPU)
			squares += float64(r.outcome.CPU) * float64(r.outcome.CPU)
			continue
		}
		f.Failed++
		f.Kinds[r.outcome.Kind]++
		if r.outcome.Class == Lost {
			f.Lost++
		} else {
			f.Wrong++
		}
		if f.Failure == "" {
			f.Failure = r.outcome.Kind + ": " + r.outcome.Detail
		}
	}
	slices.Sort(all)
	f.P99All = quantile(all, .99)
	n := float64(len(good))
	if n == 0 {
		return f
	}
	slices.Sort(good)
	f.Mean, f.Service = mean(good), time.Duration(service/n)
	f.P50, f.P90, f.P99, f.Max = quantile(good, .5), quantile(good, .9), quantile(good, .99), good[len(good)-1]
	if cpu > 0 {
		f.ServiceVariation = math.Max(0, squares*n/(cpu*cpu)-1)
	}
	if elapsed > 0 {
		f.PerSecond = n / elapsed.Seconds()
	}
	return f
}

// quantile is the smallest value that a share q of the sorted values do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func mean(values []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range values {
		sum += d
	}
	return sum / time.Duration(max(1, len(values)))
}
