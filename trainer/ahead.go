package trainer

import (
	"context"

	"temper/internal/config"
	"temper/trainer/passes"
)

// compileAhead compiles the programs of steps like this one concurrently, if their shapes are
// fixed. several reports that the step makes several updates.
func (s *step) compileAhead(ctx context.Context, several bool) error {
	if len(s.plan.Buckets) == 0 {
		return nil
	}
	kinds := []passes.Kind{passes.Gradient}
	if s.objective == passes.Policy {
		if s.loss.EntropyFraction > 0 || several && s.loss.OldLogprobs != config.OldRollout {
			kinds = append(kinds, passes.Score)
		}
		if s.loss.KL.Coefficient > 0 && s.reference.Held() {
			kinds = append(kinds, passes.Reference)
		}
	}
	var wanted []passes.GraphSpec
	for _, shape := range s.plan.Buckets {
		for _, kind := range kinds {
			wanted = append(wanted, passes.GraphSpec{Program: s.program(kind), Shape: shape, Packed: s.plan.Pack})
		}
	}
	for _, kind := range []passes.Kind{passes.Add, passes.Apply} {
		wanted = append(wanted, passes.GraphSpec{Program: passes.Program{Kind: kind}})
	}
	if several {
		wanted = append(wanted, passes.GraphSpec{Program: passes.Program{Kind: passes.Copy}})
	}
	return passes.Prepare(ctx, s.passes, wanted, s.log)
}
