package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
)

// divergedError returns the error of a refused update, with a report of the values that are
// not finite.
func (s *step) divergedError(ctx context.Context, micros []packing.Microbatch, m meter) *DivergedError {
	report := Divergence{
		Step: s.position.Step, Objective: s.objective.String(), LR: Number(s.lr), Counters: s.state.Counters(),
		Loss: Number(m.metrics(0).Loss * float64(m.lossTokens)), GradNorm: Number(m.norm), Metric: m.notFinite(),
	}
	e := diagnosis{
		state: s.state, trained: s.state.Tuning().Trained, report: &report,
		gradient: func(mb packing.Microbatch) ([]device.Value, error) { return s.gradient(mb, &m) },
	}
	if err := e.run(ctx, micros); err != nil {
		report.Incomplete = err.Error()
	}
	report.setCause()
	return &DivergedError{Report: report}
}

// diagnosis repeats the passes of a refused update, one by one, to find the values that are not
// finite. The state is the one before the update, so the passes have the same results. It
// changes nothing. A failure shortens the report.
type diagnosis struct {
	state    *optimizer.State
	trained  []model.TensorSpec
	gradient func(packing.Microbatch) ([]device.Value, error)
	report   *Divergence
}

func (e diagnosis) run(ctx context.Context, micros []packing.Microbatch) error {
	if err := e.measureWeights(); err != nil {
		return err
	}
	r, worst := e.report, -1
	for i, mb := range micros {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, reports, err := e.measurePass(mb)
		if err != nil {
			return err
		}
		r.Passes = append(r.Passes, p)
		if worst < 0 || worse(p, r.Passes[worst]) {
			worst = i
			r.setGradients(reports)
		}
	}
	for _, row := range micros[worst].Members {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, _, err := e.measurePass(micros[worst].Alone(row))
		if err != nil {
			return err
		}
		s := p.Samples[0]
		s.Loss, s.GradNorm, s.Metric = &p.Loss, &p.GradNorm, p.Metric
		r.Samples = append(r.Samples, s)
	}
	return nil
}

// measureWeights measures the weights.
func (e diagnosis) measureWeights() error {
	weights, err := e.state.Weights()
	if err != nil {
		return err
	}
	for _, w := range weights {
		norm, bad := measure(w.Data)
		frozen := !slices.ContainsFunc(e.trained, func(s model.TensorSpec) bool { return s.Name == w.Name })
		e.report.Tensors = append(e.report.Tensors, TensorReport{Name: w.Name, Frozen: frozen, WeightNorm: Number(norm), WeightNotFinite: bad})
	}
	return nil
}

// worse orders passes: one that is not finite is above all others, then by the norm.
func worse(a, b DivergedPass) bool {
	bad := func(p DivergedPass) bool { return p.Tensor != "" || p.Metric != "" }
	if bad(a) != bad(b) {
		return bad(a)
	}
	return a.GradNorm > b.GradNorm
}

// measurePass makes one pass and measures its gradient by tensor.
func (e diagnosis) measurePass(mb packing.Microbatch) (DivergedPass, []TensorReport, error) {
	out, err := e.gradient(mb)
	if err != nil {
		return DivergedPass{}, nil, err
	}
	defer device.Release(out[1:]...)
	sums := meter{lossTokens: 1} // as a sum, not as a mean
	if err := sums.addSums(out[0]); err != nil {
		return DivergedPass{}, nil, err
	}
	p := DivergedPass{Rows: mb.Rows, Length: mb.Length, Loss: Number(sums.metrics(0).Loss), Metric: sums.notFinite()}
	for _, r := range mb.Members {
		p.Samples = append(p.Samples, DivergedSample{
			Index: r.Index, ProblemID: r.Sample.ProblemID, Rollout: r.Sample.Rollout,
			Tokens: len(r.Sample.Tokens), LossTokens: r.LossTokens, Advantage: Number(r.Sample.Advantage),
		})
	}
	reports := make([]TensorReport, len(e.trained))
	squares := 0.0
	for i, spec := range e.trained {
		data, err := out[1+i].Floats()
		if err != nil {
			return DivergedPass{}, nil, fmt.Errorf("gradient of %s: %w", spec.Name, err)
		}
		norm, bad := measure(data)
		squares += norm * norm
		reports[i] = TensorReport{Name: spec.Name, GradientNorm: Number(norm), GradientNotFinite: bad}
		if bad > 0 {
			p.Tensor = spec.Name // the last one in network order is the first in the backward pass
		}
	}
	p.GradNorm = Number(math.Sqrt(squares))
	return p, reports, nil
}

// setGradients replaces the gradients in the reports of the tensors.
func (r *Divergence) setGradients(reports []TensorReport) {
	for _, from := range reports {
		at := slices.IndexFunc(r.Tensors, func(to TensorReport) bool { return to.Name == from.Name })
		r.Tensors[at].GradientNorm, r.Tensors[at].GradientNotFinite = from.GradientNorm, from.GradientNotFinite
	}
}

// setCause sets the tensor and the cause.
func (r *Divergence) setCause() {
	largest := TensorReport{}
	for _, x := range r.Tensors {
		if x.WeightNotFinite > 0 {
			r.Tensor, r.Cause = x.Name, "the weight is not finite in "+x.Name
			return
		}
		if x.GradientNorm >= largest.GradientNorm {
			largest = x
		}
	}
	for _, x := range slices.Backward(r.Tensors) {
		if x.GradientNotFinite > 0 {
			r.Tensor, r.Cause = x.Name, "the gradient is first not finite in "+x.Name+r.firstDiverging()
			return
		}
	}
	switch {
	case !finite(float64(r.Loss)) && float64(largest.GradientNorm) > 0:
		r.Cause = "the loss overflows before the gradient does" + r.firstDiverging()
	case r.Incomplete != "":
		r.Cause = "the cause is unknown (" + r.Incomplete + ")"
	case slices.ContainsFunc(r.Passes, func(p DivergedPass) bool { return p.Metric != "" }):
		r.Cause = "the metric " + r.Metric + " is not finite" + r.firstDiverging()
	case largest.Name == "" || float64(largest.GradientNorm) < math.Sqrt(math.MaxFloat32):
		r.Cause = "all finite when computed again"
	default:
		r.Cause = fmt.Sprintf("whose square overflows, largest in %s (%.3g)%s", largest.Name, float64(largest.GradientNorm), r.firstDiverging())
	}
}

// firstDiverging names the first sample that diverges in a pass alone; "" for none.
func (r *Divergence) firstDiverging() string {
	for _, s := range r.Samples {
		if s.Metric != "" || !(float64(*s.GradNorm) < math.Sqrt(math.MaxFloat32)) {
			return fmt.Sprintf(" from sample %d (%s/%d)", s.Index, s.ProblemID, s.Rollout)
		}
	}
	return ""
}

// measure returns the norm of the values and how many are not finite.
func measure(data []float32) (norm float64, bad int) {
	for _, x := range data {
		norm += float64(x) * float64(x)
		if !finite(float64(x)) {
			bad++
		}
	}
	return math.Sqrt(norm), bad
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
