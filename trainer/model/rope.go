package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Rope is the scaling of the frequencies of rotations for contexts beyond the length that a
// network was first trained with, under the names of transformers' rope_parameters. The
// zero value leaves the frequencies of rope_theta as they are.
type Rope struct {
	Kind   string  `json:"rope_type,omitzero"` // a name of ropeKinds
	Factor float64 `json:"factor,omitzero"`
	// OriginalPositions are the positions of the first training; 0 is max_position_embeddings.
	OriginalPositions int `json:"original_max_position_embeddings,omitzero"`
	// LowFreqFactor and HighFreqFactor bound the wavelengths that llama3 interpolates.
	LowFreqFactor  float64 `json:"low_freq_factor,omitzero"`
	HighFreqFactor float64 `json:"high_freq_factor,omitzero"`
	// BetaFast and BetaSlow bound the turns over OriginalPositions that yarn interpolates, 32
	// and 1 when 0.
	BetaFast float64 `json:"beta_fast,omitzero"`
	BetaSlow float64 `json:"beta_slow,omitzero"`
	// AttentionFactor multiplies the cosines and sines of yarn; 0 derives it from Factor, or
	// from both of MScale and MScaleAllDim.
	AttentionFactor float64 `json:"attention_factor,omitzero"`
	MScale          float64 `json:"mscale,omitzero"`
	MScaleAllDim    float64 `json:"mscale_all_dim,omitzero"`
}

// Kinds of Rope besides the empty one.
const (
	RopeLinear  = "linear"
	RopeDynamic = "dynamic"
	RopeLlama3  = "llama3"
	RopeYarn    = "yarn"
)

// check reports numbers that have no meaning for the kind.
func (r Rope) check() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("rope_parameters: "+format, args...)) }
	if r.Kind == "" {
		if r != (Rope{}) {
			bad("numbers without a rope_type that uses them: %+v", r)
		}
		return errs
	}
	if !slices.Contains([]string{RopeLinear, RopeDynamic, RopeLlama3, RopeYarn}, r.Kind) {
		bad("rope_type %q is not supported", r.Kind)
	}
	if !(r.Factor >= 1) || math.IsInf(r.Factor, 0) {
		bad("factor %v, want at least 1", r.Factor)
	}
	if r.Kind == RopeLlama3 && !(r.LowFreqFactor > 0 && r.HighFreqFactor > r.LowFreqFactor) {
		bad("low_freq_factor %v and high_freq_factor %v, want the second above the first, above 0", r.LowFreqFactor, r.HighFreqFactor)
	}
	for _, v := range []float64{float64(r.OriginalPositions), r.BetaFast, r.BetaSlow, r.AttentionFactor, r.MScale, r.MScaleAllDim} {
		if v < 0 || math.IsInf(v, 0) {
			bad("%v, want no number below 0", v)
		}
	}
	if yarn := (Rope{BetaFast: r.BetaFast, BetaSlow: r.BetaSlow, AttentionFactor: r.AttentionFactor, MScale: r.MScale, MScaleAllDim: r.MScaleAllDim}); r.Kind != RopeYarn && yarn != (Rope{}) {
		bad("rope_type %q does not use beta_fast, beta_slow, attention_factor and mscale", r.Kind)
	}
	return errs
}

// Rotations returns the cosines and sines of the angles of positions below length:
// [length, E/2] each, computed in float64. Pair i of a head's dimensions is (i, i + E/2).
func (c Config) Rotations(length int) (cos, sin []float32) {
	frequencies, scale := c.frequencies()
	half := len(frequencies)
	cos, sin = make([]float32, length*half), make([]float32, length*half)
	for p := range length {
		for i, f := range frequencies {
			angle := float64(p) * f
			cos[p*half+i], sin[p*half+i] = float32(scale*math.Cos(angle)), float32(scale*math.Sin(angle))
		}
	}
	return cos, sin
}

// frequencies are the angles by which the pairs of a head turn from one position to the
// next, and the factor of their cosines and sines.
//
// Dynamic scaling (of theta) begins beyond max_position_embeddings, where no context is.
func (c Config) frequencies() (f []float64, scale float64) {
	r, scale := c.Rope, 1.0
	original := float64(cmp.Or(r.OriginalPositions, c.MaxPositionEmbeddings))
	f = make([]float64, c.HeadDim/2)
	for i := range f {
		f[i] = math.Pow(c.RopeTheta, -float64(2*i)/float64(c.HeadDim))
	}
	switch r.Kind {
	case RopeLinear:
		for i := range f {
			f[i] /= r.Factor
		}
	case RopeLlama3:
		for i := range f {
			f[i] = r.llama3(f[i], original)
		}
	case RopeYarn:
		scale = r.yarnScale()
		r.yarn(f, c.RopeTheta, original)
	}
	return f, scale
}

// llama3 divides low frequencies by Factor, keeps high ones, and interpolates between
// them (Llama 3.1's model card).
func (r Rope) llama3(f, original float64) float64 {
	turns := original * f / (2 * math.Pi) // over the original positions
	switch {
	case turns > r.HighFreqFactor:
		return f
	case turns < r.LowFreqFactor:
		return f / r.Factor
	}
	s := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return (1-s)*f/r.Factor + s*f
}

// yarn divides the frequencies of later pairs by Factor, and interpolates linearly between
// the pairs that make BetaFast and BetaSlow turns over the original positions (YaRN, arXiv
// 2309.00071, section 3.2).
func (r Rope) yarn(f []float64, theta, original float64) {
	d := float64(2 * len(f))
	pair := func(turns float64) float64 { return d * math.Log(original/(2*math.Pi*turns)) / (2 * math.Log(theta)) }
	low := max(math.Floor(pair(cmp.Or(r.BetaFast, 32))), 0)
	high := min(math.Ceil(pair(cmp.Or(r.BetaSlow, 1))), d-1)
	if low == high {
		high += 0.001
	}
	for i := range f {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		f[i] = ramp*f[i]/r.Factor + (1-ramp)*f[i]
	}
}

// yarnScale is the factor of cosines and sines (YaRN, section 3.4).
func (r Rope) yarnScale() float64 {
	g := func(m float64) float64 { return 0.1*m*math.Log(r.Factor) + 1 } // 1 for a factor of 1
	switch {
	case r.AttentionFactor > 0:
		return r.AttentionFactor
	case r.MScale > 0 && r.MScaleAllDim > 0:
		return g(r.MScale) / g(r.MScaleAllDim)
	}
	return g(1)
}
