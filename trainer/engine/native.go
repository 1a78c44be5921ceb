package engine

import (
	"temper/trainer/decode"
	"temper/trainer/tensor"
)

// native computes passes without a graph, over blocks of its own.
type native struct {
	pass   *decode.Pass
	tokens []decode.Token
}

// newNative makes the pass of a device; nil where there is none for its network or
// kernels.
func newNative(d *device) *native {
	if decode.BlockTokens != blockTokens || decode.Check(d.cfg, d.kernels) != nil {
		return nil
	}
	return &native{pass: decode.NewPass(d.cfg, d.blocks, d.length)}
}

// load replaces the weights.
func (n *native) load(d *device, weights []tensor.Named) error {
	net, err := decode.NewNetwork(d.cfg, d.kernels, tensor.ByName(weights))
	if err == nil {
		n.pass.Use(net)
	}
	return err
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
