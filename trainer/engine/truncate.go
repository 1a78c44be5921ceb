package engine

import (
	"cmp"
	"math"
	"slices"

	"temper/internal/inference"
)

// candidate is a token with its probability.
type candidate struct {
	id int32
	p  float64
}

// truncated is the part of a distribution that an inference.Sampler keeps.
type truncated struct {
	left  []candidate // by id
	total float64     // of their probabilities
}

// truncate applies a sampler to softmax(scale * logits). It computes in float64 on the host,
// from the logits of one token, so its bits depend on the request alone.
func truncate(logits []float32, scale float32, by inference.Sampler) truncated {
	left := make([]candidate, len(logits))
	highest := float64(slices.Max(logits)) * float64(scale)
	for i, l := range logits {
		left[i] = candidate{int32(i), math.Exp(float64(l)*float64(scale) - highest)}
	}
	if by.TopK == 0 && (by.TopP == 0 || by.TopP == 1) && by.MinP == 0 {
		return truncated{left, sum(left)}
	}
	slices.SortFunc(left, func(a, b candidate) int {
		if c := cmp.Compare(b.p, a.p); c != 0 {
			return c
		}
		return cmp.Compare(a.id, b.id)
	})
	if by.TopK > 0 {
		left = left[:min(by.TopK, len(left))]
	}
	if by.TopP > 0 && by.TopP < 1 {
		left = nucleus(left, by.TopP)
	}
	if by.MinP > 0 {
		least := by.MinP * left[0].p
		if i := slices.IndexFunc(left, func(c candidate) bool { return c.p < least }); i > 0 {
			left = left[:i]
		}
	}
	slices.SortFunc(left, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return truncated{left, sum(left)}
}

// nucleus returns the shortest prefix that has at least a share of the whole probability.
func nucleus(sorted []candidate, part float64) []candidate {
	want, have := part*sum(sorted), 0.0
	for i, c := range sorted {
		if have += c.p; have >= want {
			return sorted[:i+1]
		}
	}
	return sorted
}

func sum(cs []candidate) (total float64) {
	for _, c := range cs {
		total += c.p
	}
	return total
}

// draw selects a token by inverting the cumulative distribution, or the likeliest one, and
// returns it with its log-probability among the kept tokens.
func (d truncated) draw(uniform float32, greedy bool) (token int32, logprob float32) {
	var chosen candidate
	if greedy {
		for _, c := range d.left {
			if c.p > chosen.p {
				chosen = c
			}
		}
	} else {
		at := 0.0
		for _, c := range d.left {
			if c.p == 0 {
				continue
			}
			chosen = c // rounding may leave the last one
			if at += c.p; at > float64(uniform)*d.total {
				break
			}
		}
	}
	return chosen.id, float32(math.Log(chosen.p / d.total))
}

// kept describes the kept part.
func (d truncated) kept(ids bool) inference.Kept {
	k := inference.Kept{Count: len(d.left)}
	if ids {
		for _, c := range d.left {
			k.IDs = append(k.IDs, c.id)
		}
	}
	return k
}

// likeliest returns the n likeliest kept tokens, in descending order. The sampled one has its
// reported log-probability.
func (d truncated) likeliest(n int, sampled int32, logprob float32) []inference.TokenLogprob {
	best := make([]candidate, 0, n+1)
	for _, c := range d.left { // sorted by id, so that the first of equals stays in front
		if len(best) == n && c.p <= best[n-1].p {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, c, func(a, b candidate) int {
			if a.p >= b.p {
				return -1
			}
			return 1
		})
		if best = slices.Insert(best, at, c); len(best) > n {
			best = best[:n]
		}
	}
	out := make([]inference.TokenLogprob, len(best))
	for i, c := range best {
		out[i] = inference.TokenLogprob{ID: c.id, Logprob: float32(math.Log(c.p / d.total))}
		if c.id == sampled {
			out[i].Logprob = logprob
		}
	}
	return out
}
