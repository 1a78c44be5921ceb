package trainer

import (
	"fmt"
	"runtime/debug"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/trainer/device"
	"temper/trainer/loss"
	"temper/trainer/qwen3"
)

// program is a graph function; each shape of its inputs is a graph.
type program struct {
	objective objective
	pass      pass
}

// objective says what a program computes of a microbatch.
type objective int

const (
	objectiveSFT objective = iota
	objectiveGRPO
)

// pass says what a program does with it.
type pass int

const (
	passScore     pass = iota // log-probabilities, and entropies where the objective selects by them
	passReference             // log-probabilities of the reference policy
	passGradient              // gradients as outputs
	passUpdate                // gradients and the optimizer in one graph
	passAdd                   // sum of two sets of gradients
	passApply                 // the optimizer on given gradients
	passCopy                  // what an update changes, in buffers of its own
)

func (p program) String() string {
	return [...]string{"sft", "grpo"}[p.objective] + " " +
		[...]string{"score", "reference", "gradient", "update", "add", "apply", "copy"}[p.pass]
}

// graphKey identifies a compiled graph.
type graphKey struct {
	program program
	shape   shape
}

// Order of a microbatch's inputs. Scoring takes the first two, the supervised
// objective the first four. The optimizer's numbers come last where there are any.
const (
	inTokens      = iota // int32 [B, T], with packing [3, B, T]: tokens, positions, segments
	inTargets            // int32 [B, T], the token after each
	inMask               // bool [B, T], the targets in the loss
	inDenominator        // float32 scalar, loss tokens of the minibatch
	inAdvantages         // float32 [B, 1], with packing [B, T]
	inRollout            // float32 [B, T], the engine's log-probabilities of the targets
	inOld                // float32 [B, T], the policy's before the step
	inHasOld             // bool scalar; without it the old policy is the present one
	inExtras             // from here on those that the objective needs, see extras
)

// build returns the graph function of a program.
func (t *Trainer) build(p program) func(*model.Scope, []*graph.Node) []*graph.Node {
	return func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		scope.SetTraining(in[0].Graph(), true) // or the backend would freeze the weights into the graph
		switch p.pass {
		case passScore, passReference:
			logprobs, entropy, _ := t.logprobs(scope, in, p.objective)
			if p.pass == passScore && t.cfg.Loss.EntropyFraction > 0 {
				return []*graph.Node{logprobs, entropy}
			}
			return []*graph.Node{logprobs}
		case passGradient:
			sums, grads := t.gradient(scope, in, p.objective)
			return append([]*graph.Node{sums}, grads...)
		case passUpdate:
			last := len(in) - 1
			sums, grads := t.gradient(scope, in[:last], p.objective)
			total := graph.Reshape(graph.SliceAxis(sums, 0, graph.AxisElem(int(loss.Loss))))
			return []*graph.Node{sums, t.adamW(scope, in[last], total, grads)}
		case passAdd:
			half := len(in) / 2
			out := make([]*graph.Node, half)
			for i := range out {
				out[i] = graph.Add(in[i], in[half+i])
			}
			return out
		case passApply:
			zero := graph.ScalarZero(in[0].Graph(), in[0].DType()) // the caller has looked at the loss
			return []*graph.Node{t.adamW(scope, in[0], zero, in[1:])}
		case passCopy:
			var out []*graph.Node
			for _, v := range t.changing() {
				out = append(out, graph.Identity(v.NodeValue(in[0].Graph())))
			}
			return out
		}
		panic(fmt.Sprintf("pass %d is not defined", p.pass))
	}
}

// logprobs runs the network: log-probabilities and entropies of the targets
// [B, T]. Where the vocabulary is worked off in chunks, the gradient of a loss
// goes by way of the third result, which is nil otherwise.
func (t *Trainer) logprobs(scope *model.Scope, in []*graph.Node, o objective) (logprobs, entropy *graph.Node, chunked *loss.Chunked) {
	options, err := t.cfg.options()
	if err != nil {
		panic(err) // New has validated
	}
	temperature, head := 1.0, qwen3.Logits
	if o == objectiveGRPO {
		temperature = float64(float32(t.cfg.Temperature)) // as requests to the engine state it
		if device.Threads(t.cfg.Backend) {
			options.LikeDecode, head = true, qwen3.LogitsLikeDecode
		}
	}
	hidden := qwen3.Forward(scope, t.cfg.Model, modelInputs(in[inTokens]), options)
	targets := in[inTargets]
	if size := loss.ChunkSize(t.cfg.Loss.MaxLogits, targets.Shape().Size(), t.cfg.Model.VocabSize); size > 0 {
		chunked = loss.NewChunked(hidden, t.head(scope, hidden.Graph()), targets, temperature, size)
		return chunked.Logprobs, chunked.Entropy, chunked
	}
	logprobs, entropy = loss.Logprobs(head(scope, t.cfg.Model, hidden), targets, temperature)
	return logprobs, entropy, nil
}

// head is the weight that maps hidden states to the vocabulary: [V, D].
func (t *Trainer) head(scope *model.Scope, g *graph.Graph) *graph.Node {
	name := "lm_head.weight"
	if t.cfg.Model.TieWordEmbeddings {
		name = "model.embed_tokens.weight"
	}
	return scope.Store().GetVariable(qwen3.VariablePath(name)).NodeValue(g)
}

// gradient returns the measures [loss.NumMeasures] of a microbatch and the
// gradient of its loss for each trained weight, in the order of
// qwen3.Config.Tensors.
func (t *Trainer) gradient(scope *model.Scope, in []*graph.Node, o objective) (sums *graph.Node, grads []*graph.Node) {
	logprobs, entropy, chunked := t.logprobs(scope, in, o)
	var out loss.Measures
	switch o {
	case objectiveSFT:
		out[loss.Loss] = loss.SFT(logprobs, in[inMask], in[inDenominator])
	case objectiveGRPO:
		out = loss.Policy(t.cfg.Loss, loss.PolicyInputs{
			Logprobs: logprobs, OldLogprobs: graph.Where(in[inHasOld], in[inOld], graph.StopGradient(logprobs)),
			RolloutLogprobs: in[inRollout], RefLogprobs: t.extra(in, inReference),
			Advantages: graph.BroadcastToShape(in[inAdvantages], logprobs.Shape()),
			Mask:       in[inMask], Selected: t.extra(in, inSelected), Sequences: t.extra(in, inSequences), Denominator: in[inDenominator],
		})
	}
	out[loss.Entropy] = loss.MaskedSum(entropy, in[inMask])
	var weights []*graph.Node
	for _, spec := range t.tuning.trained {
		weights = append(weights, t.store.GetVariable(qwen3.VariablePath(spec.Name)).NodeValue(logprobs.Graph()))
	}
	total := out[loss.Loss]
	if chunked != nil {
		total = chunked.Surrogate(total)
	}
	return out.Vector(), graph.Gradient(total, weights...)
}

// exec returns what runs a program.
func (t *Trainer) exec(p program) (*model.Exec, error) {
	if exec := t.programs[p]; exec != nil {
		return exec, nil
	}
	exec, err := model.NewExec(t.backend, t.storeOf(p), t.build(p))
	if err != nil {
		return nil, &GraphError{Op: p.String(), Err: err}
	}
	exec.SetMaxCache(-1)
	t.programs[p] = exec
	return exec, nil
}

// run calls a program. Several goroutines may at the same time, unless it
// changes weights.
func run(p program, exec *model.Exec, args ...any) ([]*tensors.Tensor, error) {
	var out []*tensors.Tensor
	err := guard(p.String(), func() (err error) {
		out, err = exec.Call(args...)
		return err
	})
	return out, err
}

// call runs a program.
func (t *Trainer) call(p program, s shape, args ...any) ([]*tensors.Tensor, error) {
	t.graphs[graphKey{p, s}] = true
	var out []*tensors.Tensor
	var err error
	if t.spread != nil {
		out, err = t.callSpread(p, args)
	} else {
		out, err = t.callAlone(p, args)
	}
	if err != nil {
		t.checkState()
		return nil, err
	}
	return out, nil
}

// callAlone is call on one device.
func (t *Trainer) callAlone(p program, args []any) ([]*tensors.Tensor, error) {
	exec, err := t.exec(p)
	if err != nil {
		return nil, err
	}
	return run(p, exec, args...)
}

// checkState notices when a failure left the store without the variables that
// the device call had taken over.
func (t *Trainer) checkState() {
	for v := range t.store.IterVariables() {
		t.ready = t.ready && v.HasValue()
	}
}

// guard turns panics and errors of GoMLX into a GraphError.
func guard(op string, fn func() error) error {
	var err error
	var stack string
	panicked := exceptions.Try(func() {
		defer func() {
			if r := recover(); r != nil {
				stack = string(debug.Stack())
				panic(r)
			}
		}()
		err = fn()
	})
	if panicked != nil {
		cause, ok := panicked.(error)
		if !ok {
			cause = fmt.Errorf("%v", panicked)
		}
		return &GraphError{Op: op, Err: cause, Stack: stack}
	}
	if err != nil {
		return &GraphError{Op: op, Err: err, Stack: fmt.Sprintf("%+v", err)} // GoMLX's errors carry their stack
	}
	return nil
}
