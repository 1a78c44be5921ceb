package passes

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/device"
	"temper/trainer/loss"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
	"temper/trainer/passes/inputs"
)

// builder builds the graphs of all programs.
type builder struct {
	network model.Config
	options graphs.Options
	loss    config.Loss
	extras  inputs.Extras // of loss
	// entropies makes the scoring program yield entropies.
	entropies bool
	// temperature of the policy objective, equal to the temperature of the rollouts.
	temperature float64
	// likeDecode gives the policy objective the bits of the engine.
	likeDecode bool
	state      *optimizer.State
}

func newBuilder(c Config, s *optimizer.State, over *sharding) builder {
	if over != nil && over.mesh.FSDP {
		c.Options.Layout = layout{over}
	}
	return builder{
		network: c.Network, options: c.Options, loss: c.Loss, extras: inputs.ExtrasOf(c.Loss), entropies: c.entropies(),
		temperature: float64(float32(c.Temperature)), // the precision of requests to the engine
		likeDecode:  device.Threads(c.Backend), state: s,
	}
}

// build returns the graph function of a program.
func (b builder) build(p Program) func(*ml.Scope, []*graph.Node) []*graph.Node {
	results := b.results(p)
	return func(scope *ml.Scope, in []*graph.Node) []*graph.Node {
		out := results(scope, in)
		if err := device.InPlace(in[0].Graph(), b.aliases(p, scope.Store(), in)); err != nil {
			panic(err)
		}
		return out
	}
}

// aliases returns the results of a program that may reuse the memory of donated inputs: new
// weights and moments, and sums of gradients.
func (b builder) aliases(p Program, store *ml.Store, in []*graph.Node) []device.Alias {
	var out []device.Alias
	if p.Kind == Add {
		for i := range len(in) / 2 {
			out = append(out, device.Alias{Input: i, Output: i})
		}
	}
	g := in[0].Graph()
	for i, v := range changed(p, store, optimizer.Variables(store, b.state.Tuning())) {
		out = append(out, device.Alias{Input: int(g.GetParameterByName(v.Path()).GetParameterHandle()), Output: i})
	}
	return out
}

// results builds the results of a program.
func (b builder) results(p Program) func(*ml.Scope, []*graph.Node) []*graph.Node {
	return func(scope *ml.Scope, in []*graph.Node) []*graph.Node {
		scope.SetTraining(in[0].Graph(), true) // else the backend freezes the weights into the graph
		switch p.Kind {
		case Score, Reference:
			logprobs, entropy, _ := b.logprobs(scope, in, p.Objective)
			if p.Kind == Score && b.entropies {
				return []*graph.Node{logprobs, entropy}
			}
			return []*graph.Node{logprobs}
		case Gradient:
			sums, grads := b.gradient(scope, in, p.Objective)
			return append([]*graph.Node{sums}, grads...)
		case Update:
			last := len(in) - 1
			sums, grads := b.gradient(scope, in[:last], p.Objective)
			watched := graph.ReduceAllSum(graph.Sub(sums, sums)) // 0, or NaN where a measure is not finite
			return []*graph.Node{sums, b.adamW(scope, in[last], watched, grads)}
		case Add:
			half := len(in) / 2
			out := make([]*graph.Node, half)
			for i := range out {
				out[i] = graph.Add(in[i], in[half+i])
			}
			return out
		case Apply:
			watched := graph.ScalarZero(in[0].Graph(), in[0].DType()) // the caller has checked the measures
			return []*graph.Node{b.adamW(scope, in[0], watched, in[1:])}
		case Copy:
			var out []*graph.Node
			for _, v := range optimizer.Variables(scope.Store(), b.state.Tuning()) {
				out = append(out, graph.Identity(v.NodeValue(in[0].Graph())))
			}
			return out
		}
		panic(fmt.Sprintf("pass %d is not defined", p.Kind))
	}
}

// logprobs runs the network and returns log-probabilities and entropies of the targets, [B, T]
// each. With a vocabulary in chunks, the gradient of a loss goes through chunked; otherwise
// that is nil.
func (b builder) logprobs(scope *ml.Scope, in []*graph.Node, o Objective) (logprobs, entropy *graph.Node, chunked *loss.Chunked) {
	options, temperature, logits := b.options, 1.0, graphs.Logits
	if o == Policy {
		temperature = b.temperature
		if b.likeDecode {
			options.LikeDecode, logits = true, graphs.LogitsLikeDecode
		}
	}
	if placed := options.Layout; placed != nil {
		logits = func(scope *ml.Scope, cfg model.Config, hidden *graph.Node) *graph.Node {
			return graphs.LogitsPlaced(scope, cfg, hidden, placed)
		}
	}
	hidden := graphs.Forward(scope, b.network, inputs.ModelInputs(in[inputs.Tokens]), options)
	targets := in[inputs.Targets]
	if size := loss.ChunkSize(b.loss.MaxLogits, targets.Shape().Size(), b.network.VocabSize); size > 0 {
		chunked = loss.NewChunked(hidden, graphs.Head(scope, b.network, hidden.Graph(), options.Layout), targets, temperature, size)
		return chunked.Logprobs, chunked.Entropy, chunked
	}
	logprobs, entropy = loss.Logprobs(logits(scope, b.network, hidden), targets, temperature)
	return logprobs, entropy, nil
}

// gradient returns the measures [loss.NumMeasures] of a microbatch and the
// gradient of its loss for each trained tensor, in the order of
// model.Config.Tensors.
func (b builder) gradient(scope *ml.Scope, in []*graph.Node, o Objective) (sums *graph.Node, grads []*graph.Node) {
	logprobs, entropy, chunked := b.logprobs(scope, in, o)
	var out loss.Measures
	switch o {
	case Supervised:
		out[loss.Loss] = loss.SFT(logprobs, in[inputs.Mask], in[inputs.Denominator])
	case Policy:
		out = loss.Policy(b.loss, loss.PolicyInputs{
			Logprobs:        logprobs,
			OldLogprobs:     graph.Where(in[inputs.HasOld], in[inputs.OldLogprobs], graph.StopGradient(logprobs)),
			RolloutLogprobs: in[inputs.RolloutLogprobs],
			RefLogprobs:     b.extras.Node(in, inputs.ReferenceLogprobs),
			Advantages:      graph.BroadcastToShape(in[inputs.Advantages], logprobs.Shape()),
			Mask:            in[inputs.Mask],
			Selected:        b.extras.Node(in, inputs.Selected),
			Sequences:       b.extras.Node(in, inputs.Sequences),
			GroupTokens:     b.extras.Node(in, inputs.GroupTokens),
			Denominator:     in[inputs.Denominator],
		})
	}
	out[loss.Entropy] = loss.MaskedSum(entropy, in[inputs.Mask])
	var weights []*graph.Node
	for _, spec := range b.state.Tuning().Trained {
		weights = append(weights, scope.Store().GetVariable(graphs.VariablePath(spec.Name)).NodeValue(logprobs.Graph()))
	}
	total := out[loss.Loss]
	if chunked != nil {
		total = chunked.Surrogate(total)
	}
	return out.Vector(), graph.Gradient(total, weights...)
}

func (b builder) adamW(scope *ml.Scope, numbers, watched *graph.Node, grads []*graph.Node) *graph.Node {
	return optimizer.AdamW(scope.Store(), b.state.Tuning(), numbers, watched, grads)
}
