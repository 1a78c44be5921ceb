package engine

import "temper/trainer/cpu/decode"

// native computes passes without a graph, over separate blocks.
type native struct {
	pass   *decode.Pass
	tokens []decode.Token
}

// newNativeDevice makes a device without a graph.
func newNativeDevice(cfg Config) *device {
	d := &device{cfg: cfg.Model, kernels: cfg.Kernels, blocks: cfg.shardBlocks(), length: max(cfg.MaxContext, probeTokens)}
	d.native = &native{pass: decode.NewPass(d.cfg, d.blocks, d.length)}
	return d
}

// execute computes the feeds of a step and fills the step's outputs.
func (n *native) execute(s *step, vocab int) error {
	n.tokens = n.tokens[:0]
	if s.wantLogits && len(s.logits) < s.n*vocab {
		s.logits = make([]float32, maxRows*vocab)
	}
	if s.wantLogits {
		s.logits = s.logits[:s.n*vocab]
	}
	for _, f := range s.feeds {
		for c, id := range f.tokens {
			t := decode.Token{
				ID: id, Position: f.position + c, Blocks: f.blocks, Sample: f.every || c == len(f.tokens)-1,
				Uniform: f.uniform, Scale: f.scale, Greedy: f.greedy,
			}
			if i := len(n.tokens); s.wantLogits && t.Sample {
				t.Logits = s.logits[i*vocab : (i+1)*vocab]
			}
			n.tokens = append(n.tokens, t)
		}
	}
	if err := guard(func() error { return n.pass.Run(n.tokens) }); err != nil {
		return err
	}
	for i, t := range n.tokens {
		s.sampled[i], s.logprobs[i] = t.Next, t.Logprob
	}
	return nil
}

// copyTokens copies keys and values between blocks.
func (n *native) copyTokens(copies []blockCopy) {
	for _, c := range copies {
		n.pass.Copy(int(c.from), int(c.to), c.n)
	}
}
