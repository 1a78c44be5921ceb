package hf

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model/graphs"
)

// entropyRows is how many positions have their scores over the vocabulary in memory at a
// time.
const entropyRows = 256

// Entropies computes, for each sequence of ids, the model's uncertainty about each next token
// at a temperature above 0, in nats: the entropy -sum p log p of its distribution over the
// vocabulary, and the log-probability of the id that came. Entry i of both belongs to ids[i],
// after the ids before it; entry 0 is 0. visit gets one sequence at a time, in order.
func Entropies(m *Model, backend string, temperature float64, sequences [][]int32, visit func(i int, entropy, logprob []float32) error) error {
	if !(temperature > 0) {
		return fmt.Errorf("entropies at temperature %v, want more than 0", temperature)
	}
	for i, ids := range sequences {
		if err := m.CheckIDs(ids); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	store := ml.NewStore()
	if err := m.Import(store); err != nil {
		return err
	}
	dev, err := device.Open(backend)
	if err != nil {
		return err
	}
	defer dev.Finalize()
	exec, err := ml.NewExec(dev, store, func(scope *ml.Scope, tokens, next *graph.Node) *graph.Node {
		hidden := graphs.Forward(scope, m.Config.Config, graphs.Inputs{Tokens: tokens}, graphs.Options{}) // [1, T, D]
		length := hidden.Shape().Dim(1)
		var parts []*graph.Node
		for at := 0; at < length; at += entropyRows {
			rows := graph.AxisRange(at, min(at+entropyRows, length))
			logits := graphs.Logits(scope, m.Config.Config, graph.Slice(hidden, graph.AxisRange(), rows, graph.AxisRange())) // [1, R, V]
			logprobs := graph.LogSoftmax(graph.MulScalar(logits, 1/temperature), -1)
			entropy := graph.Neg(graph.ReduceSum(graph.Mul(graph.Exp(logprobs), logprobs), -1)) // [1, R]
			came := graph.OneHot(graph.Slice(next, graph.AxisRange(), rows), m.Config.VocabSize, logprobs.DType())
			parts = append(parts, graph.Stack([]*graph.Node{entropy, graph.ReduceSum(graph.Mul(came, logprobs), -1)}, -1)) // [1, R, 2]
		}
		return graph.Concatenate(parts, 1)
	})
	if err != nil {
		return fmt.Errorf("entropies: %w", err)
	}
	defer kernels.Enter(kernels.Native)()
	for i, ids := range sequences {
		entropy, logprob := make([]float32, len(ids)), make([]float32, len(ids))
		if err := entropies(exec, ids, entropy, logprob); err != nil {
			return fmt.Errorf("entropies of sequence %d: %w", i, err)
		}
		if err := visit(i, entropy, logprob); err != nil {
			return err
		}
	}
	return nil
}

// entropies fills in the values of all ids except the first one.
func entropies(exec *ml.Exec, ids []int32, entropy, logprob []float32) error {
	n := len(ids) - 1
	if n < 1 {
		return nil
	}
	out, err := exec.Call([][]int32{ids[:n]}, [][]int32{ids[1:]})
	if err != nil {
		return err
	}
	flat, err := tensors.CopyFlatData[float32](out[0])
	if err != nil {
		return err
	}
	for t := range n {
		entropy[t+1], logprob[t+1] = flat[2*t], flat[2*t+1]
	}
	return nil
}
