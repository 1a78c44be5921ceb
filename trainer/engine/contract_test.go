package engine_test

import (
	"testing"

	"temper/internal/policy/policytest"
	"temper/trainer/engine"
)

// TestContract runs the suite of every policy engine, bit for bit.
func TestContract(t *testing.T) {
	model := tiny()
	e := start(t, engine.Config{Model: model})
	policytest.Run(t, func(*testing.T) policytest.Subject {
		return policytest.Subject{Engine: e, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: model.VocabSize}
	})
}
