package dataset

import (
	"errors"
	"fmt"
	"math"

	"temper/internal/rl"
)

// Part is the share of one set in a mix.
type Part struct {
	// Rows is how many rows the set has.
	Rows int
	// Epochs is how often they come, in parts of a pass too; 0 stands for once. It does not
	// count beside weights.
	Epochs float64
	// Weight is the share of the mix, against the weights of the other parts. All parts have
	// one, or none has.
	Weight float64
}

// Pick names a row of a mix: a part, and a row of it.
type Pick struct{ Part, Row int }

// maxMix bounds the rows of a mix.
const maxMix = 1 << 31

// Mix returns the rows of a mix in their order, which is drawn from the seed. With epochs
// each part gives epochs times its rows, rounded to whole rows. With weights the parts
// share num rows; num 0 stands for as many as the parts have. A part with fewer rows than
// its share is repeated, each pass in a new order; no row comes n+1 times before all have
// come n times.
func Mix(parts []Part, num int, seed uint64) ([]Pick, error) {
	shares, err := mixShares(parts, num)
	if err != nil {
		return nil, err
	}
	var out []Pick
	for i, share := range shares {
		n := parts[i].Rows
		for pass := 0; pass*n < share; pass++ {
			order := rl.Rand(rl.Seed(seed, "mix-part", uint64(i), uint64(pass))).Perm(n)
			for _, row := range order[:min(n, share-pass*n)] {
				out = append(out, Pick{i, row})
			}
		}
	}
	rl.Rand(rl.Seed(seed, "mix-order")).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}

// MixRows is how many rows Mix returns.
func MixRows(parts []Part, num int) (int, error) {
	shares, err := mixShares(parts, num)
	total := 0
	for _, share := range shares {
		total += share
	}
	return total, err
}

// mixShares is how many rows each part gives.
func mixShares(parts []Part, num int) ([]int, error) {
	weights, weighted := 0.0, 0
	total := 0.0
	for i, p := range parts {
		if p.Rows < 1 {
			return nil, fmt.Errorf("part %d of the mix has no rows", i)
		}
		if !(p.Weight >= 0) || !(p.Epochs >= 0) || math.IsInf(p.Weight+p.Epochs, 0) {
			return nil, fmt.Errorf("part %d of the mix has weight %g and epochs %g: want numbers from 0", i, p.Weight, p.Epochs)
		}
		if p.Weight > 0 {
			weighted++
		}
		weights += p.Weight
		total += float64(p.Rows) * epochsOf(p)
	}
	if weighted == 0 {
		return epochShares(parts, num)
	}
	if math.IsInf(weights*maxMix, 0) {
		return nil, errors.New("the weights of the mix sum to more than a number can be: state smaller ones")
	}
	if num > 0 {
		total = float64(num)
	}
	if total > maxMix {
		return nil, fmt.Errorf("the mix has %.0f rows, at most %d", total, maxMix)
	}
	return apportion(parts, weights, int(math.Round(total))), nil
}

func epochsOf(p Part) float64 {
	if p.Epochs == 0 {
		return 1
	}
	return p.Epochs
}

func epochShares(parts []Part, num int) ([]int, error) {
	if num > 0 {
		return nil, fmt.Errorf("a mix of %d rows needs weights", num)
	}
	out, total := make([]int, len(parts)), 0.0
	for i, p := range parts {
		share := math.Round(float64(p.Rows) * epochsOf(p))
		if total += share; total > maxMix {
			return nil, fmt.Errorf("the mix has more than %d rows", maxMix)
		}
		out[i] = int(share)
	}
	if total == 0 {
		return nil, fmt.Errorf("the epochs of the mix round to no rows")
	}
	return out, nil
}

// apportion parts total rows by weight; the largest remainders get the rows that are left.
func apportion(parts []Part, weights float64, total int) []int {
	out, left := make([]int, len(parts)), total
	rest := make([]float64, len(parts))
	for i, p := range parts {
		exact := float64(total) * p.Weight / weights
		out[i] = int(exact)
		rest[i] = exact - float64(out[i])
		left -= out[i]
	}
	for ; left > 0; left-- {
		best := -1
		for i := range parts {
			if parts[i].Weight > 0 && (best < 0 || rest[i] > rest[best]) {
				best = i
			}
		}
		out[best]++
		rest[best]--
	}
	return out
}
