package main

import (
	"fmt"
	"io"
	"time"

	"temper/internal/cli"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/estimate/question"
	"temper/trainer/passes"
)

// compiledPlan is a plan beside what the compiler says.
type compiledPlan struct {
	Backend  string                `json:"backend"`
	Compiled device.CompiledMemory `json:"compiled"`
	Peak     int64                 `json:"peak"` // compiled, of one device
	Planned  int64                 `json:"planned"`
	Error    float64               `json:"error"`
	Seconds  float64               `json:"seconds"`
}

// compilePlan compiles the step of a plan and prints its memory beside the plan's.
func compilePlan(out io.Writer, q question.Question, s estimate.Summary, asJSON bool) error {
	r := q.Request
	number := "float32"
	if r.Half {
		number = "bfloat16"
	}
	begin := time.Now()
	m, err := passes.CompileUpdate(passes.Outline{
		Backend: q.Compile, Model: r.Model, Mesh: s.Over, Rows: r.Rows, Length: r.Length,
		Packed: r.Packed, Remat: r.Remat, Compute: number, LogitsChunk: r.LogitsChunk,
	})
	if err != nil {
		return err
	}
	p := compiledPlan{Backend: q.Compile, Compiled: m, Peak: m.Peak(), Planned: s.Report.Program(), Seconds: time.Since(begin).Seconds()}
	p.Error = float64(p.Planned)/float64(p.Peak) - 1
	if asJSON {
		return cli.PrintJSON(out, p)
	}
	s.Text(out)
	const gb = 1e9
	fmt.Fprintf(out, "compiled for %s on %s in %.0f s: arguments %.4f, results %.4f, of these in place %.4f, temporary %.4f: %.4f GB a device; the plan without its reserve %.4f, %+.1f %%\n",
		s.Mesh, q.Compile, p.Seconds, float64(m.Arguments)/gb, float64(m.Results)/gb, float64(m.Aliased)/gb, float64(m.Temporary)/gb,
		float64(p.Peak)/gb, float64(p.Planned)/gb, 100*p.Error)
	return nil
}
