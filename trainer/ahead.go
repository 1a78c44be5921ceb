package trainer

import (
	"context"

	"temper/internal/config"
	"temper/trainer/pass"
)

// compileAhead compiles the programs that steps like this one meet, side by side, where their
// shapes are fixed. several says that the step makes several updates.
func (s *step) compileAhead(ctx context.Context, several bool) error {
	if len(s.plan.Buckets) == 0 {
		return nil
	}
	kinds := []pass.Kind{pass.Gradient}
	if s.objective == pass.Policy {
		if s.loss.EntropyFraction > 0 || several && s.loss.OldLogprobs != config.OldRollout {
			kinds = append(kinds, pass.Score)
		}
		if s.loss.KL.Coefficient > 0 && s.reference.Held() {
			kinds = append(kinds, pass.Reference)
		}
	}
	var wanted []pass.Wanted
	for _, shape := range s.plan.Buckets {
		for _, kind := range kinds {
			wanted = append(wanted, pass.Wanted{Program: s.program(kind), Shape: shape, Packed: s.plan.Pack})
		}
	}
	for _, kind := range []pass.Kind{pass.Add, pass.Apply} {
		wanted = append(wanted, pass.Wanted{Program: pass.Program{Kind: kind}})
	}
	if several {
		wanted = append(wanted, pass.Wanted{Program: pass.Program{Kind: pass.Copy}})
	}
	return pass.Prepare(ctx, s.passes, wanted, s.log)
}
