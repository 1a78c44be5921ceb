package attention

import "math"

// Scalar returns kernels in plain Go.
func Scalar() *Kernels {
	return &Kernels{product: multiplyScalar, soften: softenScalar, pull: pullScalar}
}

func multiplyScalar(p product) {
	for r := range p.rows {
		out := p.out[r*p.outRow:][:p.columns]
		if !p.add {
			clear(out)
		}
		for k := range p.depth {
			x := p.x[r*p.xRow+k*p.xStep]
			for c, y := range p.y[k*p.yStep:][:p.columns] {
				out[c] += x * y
			}
		}
	}
}

func softenScalar(row []float32, n int, scale float32) {
	clear(row[n:])
	row = row[:n]
	most, sum := float32(math.Inf(-1)), float32(0)
	for i := range row {
		row[i] *= scale
		most = max(most, row[i])
	}
	for i := range row {
		row[i] = float32(math.Exp(float64(row[i] - most)))
		sum += row[i]
	}
	for i := range row {
		row[i] /= sum
	}
}

func pullScalar(dp, p []float32, n int, scale float32) {
	clear(dp[n:])
	dp = dp[:n]
	var sum float32
	for i, d := range dp {
		sum += p[i] * d
	}
	for i, d := range dp {
		dp[i] = p[i] * (d - sum) * scale
	}
}

// answerScalar computes answers in the order of the CPU backend without a kernel: term by term.
func answerScalar(s *Sequence) {
	scores := make([]float32, s.Tokens)
	for head, queries := range s.Queries {
		for i := range s.Tokens {
			row := scores[:i+1]
			s.weigh(queries.Data[i*queries.Stride:][:s.Dim], row)
			out := s.Answers[head].Data[i*s.Answers[head].Stride:][:s.Dim]
			for d := range out {
				var sum float32
				for j, w := range row {
					sum += w * s.Values.Data[j*s.Values.Stride+d]
				}
				out[d] = sum
			}
		}
	}
}

// weigh fills a row with the weights of the first keys for a query.
func (s *Sequence) weigh(q, row []float32) {
	most := float32(math.Inf(-1))
	for j := range row {
		var dot float32
		for d, k := range s.Keys.Data[j*s.Keys.Stride:][:s.Dim] {
			dot += q[d] * k
		}
		row[j] = dot * s.Scale
		most = max(most, row[j])
	}
	var sum float32
	for j := range row {
		row[j] = float32(math.Exp(float64(row[j] - most)))
		sum += row[j]
	}
	inverse := 1 / sum
	for j := range row {
		row[j] *= inverse
	}
}
