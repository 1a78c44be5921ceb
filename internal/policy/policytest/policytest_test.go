package policytest_test

import (
	"testing"

	"temper/internal/policy"
	"temper/internal/policy/policytest"
)

func TestScriptKeepsTheContract(t *testing.T) {
	policytest.Run(t, func(*testing.T) policytest.Subject {
		engine := &policytest.Script{Reply: policytest.Random(50), Serving: 3, Context: 64}
		return policytest.Subject{Engine: engine, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: 50}
	})
}

func TestTurnsPlaysInOrder(t *testing.T) {
	const end = 9
	engine := &policytest.Script{Reply: policytest.Turns(end, 1, []int32{1, 2, end}, []int32{3, end})}
	tokens := []int32{7, end}
	for _, want := range [][]int32{{1, 2, end}, {3, end}, {end}} {
		gen, err := engine.Generate(t.Context(), policy.Request{Tokens: tokens, MaxTokens: 5, Stop: []int32{end}, Version: -1})
		if err != nil {
			t.Fatal(err)
		}
		if len(gen.Tokens) != len(want) || gen.Tokens[0] != want[0] {
			t.Fatalf("got %v, want %v", gen.Tokens, want)
		}
		tokens = append(append(tokens, gen.Tokens...), 7, end) // a tool response
	}
}
