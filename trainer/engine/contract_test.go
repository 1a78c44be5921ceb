package engine_test

import (
	"testing"

	"temper/internal/inference/inferencetest"
	"temper/trainer/engine"
)

// TestContract runs the suite of every policy engine, bit for bit.
func TestContract(t *testing.T) {
	model := tiny()
	e := start(t, engine.Config{Model: model})
	inferencetest.Run(t, func(*testing.T) inferencetest.Subject {
		return inferencetest.Subject{Engine: e, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: model.VocabSize}
	})
}
