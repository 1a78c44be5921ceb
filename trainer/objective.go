package trainer

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/loss"
)

// extra is an input of policy updates that some objectives need.
type extra int

const (
	inSequences extra = iota // int32 [B, T], the number of each token's sequence in the microbatch
	inSelected               // bool [B, T], the targets of the LossMask that train
	inReference              // float32 [B, T], the reference policy's log-probabilities of the targets
)

// extras are the further inputs of the configured objective, in their order.
func (t *Trainer) extras() []extra {
	var out []extra
	if loss.NeedsSequences(t.cfg.Loss) {
		out = append(out, inSequences)
	}
	if t.cfg.Loss.EntropyFraction > 0 {
		out = append(out, inSelected)
	}
	if t.cfg.Loss.KL.Coefficient > 0 {
		out = append(out, inReference)
	}
	return out
}

// extra is the input of that name, nil where the objective has none.
func (t *Trainer) extra(in []*graph.Node, e extra) *graph.Node {
	i := slices.Index(t.extras(), e)
	if i < 0 {
		return nil
	}
	return in[inExtras+i]
}

// feed builds the inputs of a microbatch of the minibatch that m describes.
func (t *Trainer) feed(p program, mb microbatch, m *meter) []any {
	if p.objective == objectiveSFT {
		return mb.feed(p, m.lossTokens)
	}
	args := mb.feed(p, loss.Denominator(t.cfg.Loss, m.lossTokens, m.sequences))
	for _, e := range t.extras() {
		switch e {
		case inSequences:
			args = append(args, mb.sequences())
		case inSelected:
			args = append(args, shaped(mb, laid(mb, func(r *row) []bool { return r.selected })))
		case inReference:
			args = append(args, shaped(mb, laid(mb, func(r *row) []float32 { return r.reference })))
		}
	}
	return args
}

// sequences numbers the tokens of each member: int32 [B, T].
func (mb microbatch) sequences() *tensors.Tensor {
	out := make([]int32, mb.rows*mb.length)
	for i, r := range mb.members {
		for p := range r.length {
			out[mb.starts[i]+p] = int32(i)
		}
	}
	return shaped(mb, out)
}

// storeOf is where the weights of a program are.
func (t *Trainer) storeOf(p program) *model.Store {
	if p.pass == passReference {
		return t.reference
	}
	return t.store
}
