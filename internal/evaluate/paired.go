package evaluate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Difference compares two policies on the problems that both were evaluated on.
type Difference struct {
	// Value is the mean over problems of the share of right samples of the second policy less
	// the share of the first. Low and High are the ends of its interval.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// P is the probability of a mean at least so far from 0 if each problem's difference
	// had either sign with the same probability (Fisher's randomization test).
	P        float64 `json:"p"`
	Problems int     `json:"problems"`
	// Better and Worse count the problems on which the second policy is better or worse.
	Better int `json:"better"`
	Worse  int `json:"worse"`
}

// ComparePaired is the paired comparison of two policies.
func ComparePaired(first, second []Problem) Difference {
	byID := make(map[string]float64, len(first))
	for _, p := range first {
		byID[p.ID] = share(p)
	}
	second = slices.Clone(second)
	slices.SortFunc(second, func(a, b Problem) int { return cmp.Compare(a.ID, b.ID) })
	var ds []float64
	var out Difference
	for _, p := range second {
		before, ok := byID[p.ID]
		if !ok {
			continue
		}
		d := share(p) - before
		switch {
		case d > 0:
			out.Better++
		case d < 0:
			out.Worse++
		}
		ds = append(ds, d)
	}
	out.Problems = len(ds)
	if len(ds) == 0 {
		out.P = 1
		return out
	}
	mean, variance := moments(ds)
	half := math.Inf(1)
	if n := float64(len(ds)); n > 1 {
		half = studentQuantile((1+confidence)/2, n-1) * math.Sqrt(variance/n)
	}
	out.Value, out.Low, out.High, out.P = mean, max(-1, mean-half), min(1, mean+half), signFlips(ds)
	return out
}

// Bounds of the randomization test.
const (
	exactFlips = 16      // with so many differences, all signs are tried
	drawnFlips = 100_000 // signs that are drawn with more
	slack      = 1e-12   // of sums that are equal but for rounding
)

// signFlips is the share of the signs whose sum is at least as far from 0.
func signFlips(ds []float64) float64 {
	ds = slices.DeleteFunc(slices.Clone(ds), func(d float64) bool { return d == 0 })
	sum := 0.0
	for _, d := range ds {
		sum += d
	}
	far := math.Abs(sum) - slack
	if len(ds) <= exactFlips {
		hits := 0
		for signs := range uint64(1) << len(ds) {
			if math.Abs(sumWithSigns(ds, signs)) >= far {
				hits++
			}
		}
		return float64(hits) / float64(int(1)<<len(ds))
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(ds)))) //nolint:gosec // a test of numbers is no secret
	hits := 1                                        // the signs as they are
	for range drawnFlips {
		s := 0.0
		for at := 0; at < len(ds); at += 64 {
			s += sumWithSigns(ds[at:min(at+64, len(ds))], rng.Uint64())
		}
		if math.Abs(s) >= far {
			hits++
		}
	}
	return float64(hits) / (drawnFlips + 1)
}

// sumWithSigns sums up to 64 differences, and negates those whose bit in signs is set.
func sumWithSigns(ds []float64, signs uint64) float64 {
	s := 0.0
	for i, d := range ds {
		if signs>>i&1 == 1 {
			d = -d
		}
		s += d
	}
	return s
}

// studentQuantile is the quantile of Student's distribution, by halving.
func studentQuantile(p, freedom float64) float64 {
	low, high := 0.0, 1e4
	for range 200 {
		middle := (low + high) / 2
		if studentCDF(middle, freedom) < p {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// studentCDF is the distribution function at t >= 0.
func studentCDF(t, freedom float64) float64 {
	return 1 - regularizedBeta(freedom/(freedom+t*t), freedom/2, 0.5)/2
}

// regularizedBeta is I_x(a, b) by its continued fraction (Lentz's method; Numerical
// Recipes, section 6.4).
func regularizedBeta(x, a, b float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) {
		return 1 - regularizedBeta(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log(1-x)) / a
	const tiny, precision = 1e-300, 1e-15
	c, d := 1.0, 1/max(tiny, 1-(a+b)*x/(a+1))
	f := d
	for m := 1.0; m < 1000; m++ {
		for _, numerator := range []float64{
			m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)),
			-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)),
		} {
			d = 1 / atLeast(1+numerator*d, tiny)
			c = atLeast(1+numerator/c, tiny)
			f *= c * d
		}
		if math.Abs(c*d-1) < precision {
			break
		}
	}
	return front * f
}

func atLeast(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}
