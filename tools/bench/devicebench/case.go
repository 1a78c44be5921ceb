package devicebench

import (
	"context"
	"fmt"
	"time"

	"temper/tools/bench/meter"
	"temper/tools/bench/trainerbench"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/passes"
	"temper/trainer/xla/flash"
	"temper/trainer/xla/selfcheck"
)

// Work is what a case measures.
type Work string

// The kinds of work.
const (
	Check  Work = "check"  // the self-check, against the Go backend
	Train  Work = "train"  // training steps
	Decode Work = "decode" // sampling
)

// Case is one measurement, in one process.
type Case struct {
	Work    Work   `json:"work"`
	Backend string `json:"backend"`
	Model   string `json:"model,omitempty"`
	Mesh    string `json:"mesh,omitempty"` // as ParseMesh reads it; "" is one device
	// Rows sequences of Tokens tokens of one data replica make a step. Slots sequences are
	// decoded at once.
	Rows    int    `json:"rows,omitempty"`
	Tokens  int    `json:"tokens,omitempty"`
	Slots   int    `json:"slots,omitempty"`
	Compute string `json:"compute,omitempty"` // float32 or bfloat16
	Rounds  int    `json:"rounds,omitempty"`
	// Peer has PyTorch make the same step.
	Peer bool `json:"peer,omitempty"`
}

// String is like "train 1m, data=2,model=2, 8 x 256, bfloat16".
func (c Case) String() string {
	s := string(c.Work)
	if c.Model != "" {
		s += " " + c.Model
	}
	if c.Mesh != "" {
		s += ", " + c.Mesh
	}
	switch c.Work {
	case Train:
		s += fmt.Sprintf(", %d x %d, %s", c.Rows, c.Tokens, c.Compute)
	case Decode:
		s += fmt.Sprintf(", %d at once", c.Slots)
	case Check:
	}
	return s
}

// Result is what a case found. What was not measured is left out.
type Result struct {
	Case
	Check   *selfcheck.Report `json:"check,omitempty"`
	Seconds float64           `json:"seconds"`
	// FirstStep and Step are seconds of wall time; the first one compiles.
	FirstStep       float64   `json:"first_step,omitempty"`
	Step            float64   `json:"step,omitempty"`
	TokensPerSecond float64   `json:"tokens_per_s,omitempty"`
	CPUSeconds      float64   `json:"cpu_s,omitempty"` // of a step
	FLOPS           float64   `json:"flops,omitempty"` // of the model, in a second
	MFU             float64   `json:"mfu,omitempty"`   // share of the data sheet's peak, of all devices
	Losses          []float64 `json:"losses,omitempty"`
	Graphs          int       `json:"graphs,omitempty"`
	// Bytes of one device: by the plan without its reserve, by the compiler, and used as
	// the driver says (of the first device, by all processes).
	Planned  int64 `json:"planned,omitempty"`
	Compiled int64 `json:"compiled,omitempty"`
	Used     int64 `json:"used,omitempty"`
	// PeakRSS is the resident memory of the process.
	PeakRSS int64 `json:"peak_rss,omitempty"`
	// Torch is PyTorch's step; TorchError why there is none.
	Torch      []TorchStep `json:"torch,omitempty"`
	TorchError string      `json:"torch_error,omitempty"`
	// Error is why the case failed; nothing else is measured then.
	Error string `json:"error,omitempty"`
}

// Measure makes a case in this process.
func Measure(ctx context.Context, c Case) (r Result, err error) {
	r.Case = c
	begin := time.Now()
	defer func() { r.Seconds, r.PeakRSS = time.Since(begin).Seconds(), meter.PeakRSS() }()
	mesh, err := device.ParseMesh(c.Mesh)
	if err != nil {
		return r, err
	}
	switch c.Work {
	case Check:
		report, err := selfcheck.Run(ctx, c.Backend, mesh)
		r.Check = &report
		return r, err
	case Train:
		return r, r.train(ctx, mesh)
	case Decode:
		return r, r.decode(ctx)
	}
	return r, fmt.Errorf("work %q is not defined", c.Work)
}

// config is what trainerbench measures for the case.
func (c Case) config(mesh device.Mesh) (trainerbench.Config, error) {
	model, err := trainerbench.Model(c.Model)
	if err != nil {
		return trainerbench.Config{}, err
	}
	model.MaxPositionEmbeddings = max(model.MaxPositionEmbeddings, c.Tokens+1)
	return trainerbench.Config{
		Model: model, Backend: c.Backend, Mesh: mesh, Compute: c.Compute, Batch: c.Rows * max(1, mesh.Data), Tokens: c.Tokens,
		Rounds: max(1, c.Rounds), Steps: 1, Seed: 1,
	}, nil
}

// train measures steps, and then asks the compiler for the memory of an update in one pass.
func (r *Result) train(ctx context.Context, mesh device.Mesh) error {
	c, err := r.config(mesh)
	if err != nil {
		return err
	}
	if err := r.memory(c); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	stop := r.watch(ctx)
	t, err := trainerbench.Train(ctx, c, nil)
	stop()
	if err != nil {
		return err
	}
	r.FirstStep, r.Step, r.CPUSeconds = t.First.Wall.Seconds(), t.Step.Wall.Seconds(), t.Step.CPU.Seconds()
	r.TokensPerSecond, r.FLOPS, r.Losses, r.Graphs = t.TokensPerSecond, t.FLOPsPerSecond, t.Losses, t.Graphs
	return nil
}

// memory asks the compiler and the plan.
func (r *Result) memory(c trainerbench.Config) error {
	mesh := c.Mesh
	if !mesh.Several() {
		mesh = device.Mesh{Data: 1, Model: 1}
	}
	m, err := passes.CompileUpdate(passes.Outline{Backend: c.Backend, Model: c.Model, Mesh: mesh, Rows: r.Rows, Length: r.Tokens, Compute: c.Compute})
	if err != nil {
		return err
	}
	kind := estimate.Device{Fused: true}
	if !onCPU(c.Backend) {
		kind.Block = flash.MaxBlockGPU
	}
	p, err := estimate.Estimate(estimate.Config{
		Model: c.Model, Device: kind, Mesh: mesh, Rows: r.Rows, Length: r.Tokens, Half: c.Compute == "bfloat16",
	})
	r.Compiled, r.Planned = m.Peak(), p.Program()
	return err
}

// watch reads how much of the device's memory is used, until it is stopped.
func (r *Result) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			used := usedMemory(ctx, r.Backend)
			if used == 0 {
				return // nobody says
			}
			r.Used = max(r.Used, used)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (r *Result) decode(ctx context.Context) error {
	c, err := r.config(device.Mesh{})
	if err != nil {
		return err
	}
	d, err := trainerbench.Decode(ctx, c, r.Slots)
	if err != nil {
		return err
	}
	r.TokensPerSecond, r.Step, r.CPUSeconds = d.TokensPerSecond, d.Cost.Wall.Seconds(), d.Cost.CPU.Seconds()
	return nil
}
