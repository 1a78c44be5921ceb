package trainer

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// TestLostStateForcesRestore takes a variable away as a device call does that
// fails after it has taken the weights over.
func TestLostStateForcesRestore(t *testing.T) {
	tr, err := New(Config{MicrobatchTokens: 512, Temperature: 1, Model: model.Config{
		VocabSize: 11, HiddenSize: 8, IntermediateSize: 8, NumHiddenLayers: 1, NumAttentionHeads: 1, NumKeyValueHeads: 1, HeadDim: 8,
		MaxPositionEmbeddings: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	state, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	sample := []rl.Sample{{Tokens: []int32{1, 2, 3}, LossMask: []bool{false, true, true}}}
	step := func() error {
		_, err := tr.SFTStep(t.Context(), sample, config.Optimizer{LR: 1, Schedule: "constant"}, Position{Step: 1})
		return err
	}
	v := tr.state.Store().GetVariable(model.VariablePath("model.norm.weight"))
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	var graphErr *GraphError
	if err := step(); !errors.As(err, &graphErr) || graphErr.Stack == "" || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %v, want a GraphError of one line with a stack", err)
	}
	if err := step(); !errors.Is(err, ErrNoState) {
		t.Errorf("error %v, want ErrNoState", err)
	}
	if err := tr.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	if err := step(); err != nil {
		t.Errorf("after the restore: %v", err)
	}
}

// TestSavepointBringsLostStateBack: a device call that took weights over and
// failed in a later update of a step leaves the state from before the step.
func TestSavepointBringsLostStateBack(t *testing.T) {
	tr := trapTrainer(t, trapConfig())
	trapStep(t, tr, story(2, 12))
	want, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := tr.passes.Savepoint()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Release()
	trapStep(t, tr, story(3, 12))
	if err := tr.state.Store().GetVariable(model.VariablePath("model.norm.weight")).Reset(); err != nil {
		t.Fatal(err)
	}
	tr.state.Verify()
	if tr.state.Ready() {
		t.Error("a state without a weight is ready")
	}
	if err := tr.state.GoBack(before); err != nil {
		t.Error(err)
	}
	got, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the state is another:\n%s", diff)
	}
	trapStep(t, tr, story(2, 12)) // and it goes on from there
}
