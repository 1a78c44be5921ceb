package inferencetest_test

import (
	"testing"

	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
)

func TestScriptKeepsTheContract(t *testing.T) {
	inferencetest.Run(t, func(*testing.T) inferencetest.Subject {
		engine := &inferencetest.Script{Reply: inferencetest.Random(50), Serving: 3, Context: 64}
		return inferencetest.Subject{Engine: engine, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: 50}
	})
}

func TestTurnsPlaysInOrder(t *testing.T) {
	const end = 9
	engine := &inferencetest.Script{Reply: inferencetest.Turns(end, 1, []int32{1, 2, end}, []int32{3, end})}
	tokens := []int32{7, end}
	for _, want := range [][]int32{{1, 2, end}, {3, end}, {end}} {
		gen, err := engine.Generate(t.Context(), inference.Request{Tokens: tokens, MaxTokens: 5, Stop: []int32{end}, Version: -1})
		if err != nil {
			t.Fatal(err)
		}
		if len(gen.Tokens) != len(want) || gen.Tokens[0] != want[0] {
			t.Fatalf("got %v, want %v", gen.Tokens, want)
		}
		tokens = append(append(tokens, gen.Tokens...), 7, end) // a tool response
	}
}
