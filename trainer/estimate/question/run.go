package question

import (
	"fmt"
	"runtime"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/estimate"
	"temper/trainer/loss"
	"temper/trainer/model"
)

// fromRun sets the fields that the configuration has and no flag sets.
func (q *Question) fromRun(stated func(flag string) bool) error {
	cfg, err := config.LoadFile(q.Run, nil)
	if err != nil {
		return err
	}
	r := &q.Request
	if !stated("model") {
		if r.Model, err = modelOfRun(cfg); err != nil {
			return err
		}
	}
	set := func(flag string, value func()) {
		if !stated(flag) {
			value()
		}
	}
	q.run = cfg
	pass := cfg.RL.MicrobatchTokens
	if !r.Device.Fused { // its passes are short, one a core
		pass = min(pass, trainer.DefaultLaneTokens)
		r.Passes = runtime.GOMAXPROCS(0)
		r.Accumulate = true
	}
	kept := cfg.RL.ProblemsPerStep * cfg.RL.GroupSize
	set("tokens", func() { r.Length = cfg.Model.MaxContext })
	set("sequences", func() { r.Rows = max(1, pass/r.Length) })
	set("remat", func() { r.Remat = cfg.Model.Remat })
	set("f32", func() { q.F32 = cfg.Model.Compute != config.ComputeBFloat16 })
	set("pack", func() { r.Packed = cfg.RL.Pack })
	set("reference", func() { r.Reference = cfg.RL.Loss.KL.Coefficient > 0 })
	set("minibatches", func() { q.Minibatches = cfg.RL.NumMinibatches })
	set("accumulate", func() {
		r.Accumulate = r.Accumulate || r.Device.Fused && q.Compile == "" || kept/max(1, q.Minibatches) > r.Rows
	})
	set("logits-chunk", func() { r.LogitsChunk = loss.ChunkSize(cfg.RL.Loss.MaxLogits, r.Rows*r.Length, r.Model.VocabSize) })
	set("step-tokens", func() {
		mean := r.MeanLength
		if mean == 0 {
			mean = r.Length
		}
		r.StepTokens = kept * mean
	})
	q.About = fmt.Sprintf("%s: %d problems of %d rollouts a step, %d kept of each; contexts of up to %d tokens (model.max_context), "+
		"%d in a pass (rl.microbatch_tokens %d)\n",
		cfg.Name, cfg.RL.ProblemsPerStep, cfg.RL.RolloutsPerProblem, cfg.RL.GroupSize, cfg.Model.MaxContext, r.Rows, cfg.RL.MicrobatchTokens)
	return nil
}

// modelOfRun returns the network that a run trains, with the largest vocabulary that its
// tokenizer may learn.
func modelOfRun(cfg config.Run) (model.Config, error) {
	m := cfg.Model
	if m.Run != "" {
		return model.Config{}, fmt.Errorf("model.run %s is in a store: name the network with --model", m.Run)
	}
	if m.Path != "" {
		network, err := estimate.Model(m.Path)
		if err != nil {
			return network, fmt.Errorf("model.path is not there, name the network with --model: %w", err)
		}
		return network, nil
	}
	plain, err := chat.NewPlain(chat.Config{})
	if err != nil {
		return model.Config{}, err
	}
	return model.OfRun(m, plain.Tokenizer().VocabSize()+cfg.Tokenizer.NumMerges), nil
}
