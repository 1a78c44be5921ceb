package series

import "time"

// Busy measures one machine while one of its processes did a part of a step.
type Busy struct {
	Host   string `json:"host"`
	Worker string `json:"worker"` // the process
	Cores  int    `json:"cores"`
	// Wall is how long the part took.
	Wall time.Duration `json:"wall_ns"`
	// Process is the processor time of the process: the engine with the loop of the
	// rollouts, or the trainer.
	Process time.Duration `json:"process_ns"`
	// Programs is the processor time of the programs that the sandbox ran for the process, on
	// any machine.
	Programs time.Duration `json:"programs_ns"`
	// Sandbox is the processor time of the sandbox on this machine and its programs; 0 where
	// the process knows of no sandbox.
	Sandbox time.Duration `json:"sandbox_ns"`
	// Machine and Idle are the times in which the cores of the machine worked, for
	// whomever, and did not.
	Machine time.Duration `json:"machine_ns"`
	Idle    time.Duration `json:"idle_ns"`
	// Passes counts the passes of the engine by the number of requests that each served.
	Passes []int64 `json:"passes_by_rows,omitempty"`
	// Graphs counts compilations for a trainer on an accelerator.
	Graphs *Graphs `json:"graphs,omitempty"`
	// Work is the computation of a trainer; nil when the peak of its devices is unknown.
	Work *Work `json:"work,omitempty"`
	// PeakMemory is the most memory that the process has held since its start, bytes.
	PeakMemory int64 `json:"peak_memory_bytes,omitempty"`
	// Usage holds the sampler's own measurements; nil for a trainer.
	Usage *SamplerUse `json:"usage,omitempty"`
}

// Work is the computation of training, beside the peak of its devices in a second.
type Work struct {
	// FLOPs counts the operations of the model, forward and backward, without recomputation.
	FLOPs float64 `json:"flops"`
	// Peak is the sum of the devices' peaks by their data sheets, operations a second.
	Peak float64 `json:"peak_flops"`
}

// machines sums up what runs side by side: processes count each, and the machine that
// several of them share counts once, as the one says that took longest.
type machines struct {
	process, programs, sandbox, rest, idle time.Duration
}

func sumBusy(parts []Busy) machines {
	var m machines
	longest := map[string]*Busy{}
	perHost := map[string]time.Duration{}
	for i := range parts {
		p := &parts[i]
		m.process += p.Process
		m.programs += p.Programs
		perHost[p.Host] += p.Process
		if l, ok := longest[p.Host]; !ok || p.Wall > l.Wall {
			longest[p.Host] = p
		}
	}
	for host, l := range longest {
		m.sandbox += l.Sandbox
		m.idle += l.Idle
		m.rest += max(0, l.Machine-perHost[host]-l.Sandbox)
	}
	if m.sandbox == 0 { // it is on another machine
		m.sandbox = m.programs
	}
	return m
}

// Pool adds the passes of one engine to the passes of others.
func Pool(sum, more []int64) []int64 {
	for len(sum) < len(more) {
		sum = append(sum, 0)
	}
	for i, n := range more {
		sum[i] += n
	}
	return sum
}

// rowsOf returns the number of passes, and the mean and the tenth percentile of the
// requests that a pass served.
func rowsOf(parts []Busy) (passes, mean, p10 float64) {
	var all []int64
	for _, p := range parts {
		all = Pool(all, p.Passes)
	}
	total, rows := int64(0), int64(0)
	for i, n := range all {
		total += n
		rows += int64(i) * n
	}
	if total == 0 {
		return 0, 0, 0
	}
	seen := int64(0)
	for i, n := range all {
		if seen += n; 10*seen >= total {
			return float64(total), float64(rows) / float64(total), float64(i)
		}
	}
	return float64(total), float64(rows) / float64(total), 0
}
