package evaluate

import (
	"fmt"
	"math"
	"slices"
)

// Problem is what the samples of one problem came to.
type Problem struct {
	ID string
	// Correct says of each sample whether it was right; Answers is what it answered, in a
	// form in which equal answers are equal texts. "" is no answer, which has no vote.
	Correct []bool
	Answers []string
}

// Estimate is a mean over problems with the interval that covers the mean over all
// problems of their kind with the stated confidence.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Problems is the number of problems that it is a mean over.
	Problems int `json:"problems"`
}

// confidence of all intervals.
const confidence = 0.95

// Average is avg@k with k all samples of a problem: the mean over problems of the share
// of right samples.
func Average(ps []Problem) Estimate { return overProblems(ps, share) }

func share(p Problem) float64 {
	right := 0
	for _, ok := range p.Correct {
		if ok {
			right++
		}
	}
	return float64(right) / float64(max(1, len(p.Correct)))
}

// PassAt is pass@k: the mean over problems of the probability that at least one of k
// samples is right, by the unbiased estimator 1 - C(n-c, k)/C(n, k) for c right ones of n
// (arXiv 2107.03374, equation 1). Errors: a problem with fewer than k samples.
func PassAt(ps []Problem, k int) (Estimate, error) {
	if err := enough(ps, k); err != nil {
		return Estimate{}, err
	}
	return overProblems(ps, func(p Problem) float64 {
		right := 0
		for _, ok := range p.Correct {
			if ok {
				right++
			}
		}
		return passAt(len(p.Correct), right, k)
	}), nil
}

// passAt is a product, so that no binomial overflows.
func passAt(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	miss := 1.0
	for i := n - c + 1; i <= n; i++ {
		miss *= 1 - float64(k)/float64(i)
	}
	return 1 - miss
}

// MajorityAt is maj@k: the mean over problems of the probability that the most frequent
// answer of k samples, drawn without replacement, is right. All right samples count as one
// answer. Of equally frequent answers each wins with the same probability; a sample
// without an answer has no vote. Errors: a problem with fewer than k samples, or with more
// than 1000.
func MajorityAt(ps []Problem, k int) (Estimate, error) {
	if err := enough(ps, k); err != nil {
		return Estimate{}, err
	}
	for _, p := range ps {
		if len(p.Correct) > maxVotes || len(p.Answers) != len(p.Correct) {
			return Estimate{}, fmt.Errorf("problem %s: %d verdicts and %d answers, want as many of both, at most %d", p.ID, len(p.Correct), len(p.Answers), maxVotes)
		}
	}
	return overProblems(ps, func(p Problem) float64 { return majorityAt(p, k) }), nil
}

// maxVotes keeps binomials below the largest float64.
const maxVotes = 1000

// majorityAt counts the ways to draw k samples by what the right answer gets: j votes,
// while no other answer gets more, and t of them as many.
func majorityAt(p Problem, k int) float64 {
	right, silent, wrong := 0, 0, map[string]int{}
	for i, ok := range p.Correct {
		switch {
		case ok:
			right++
		case p.Answers[i] == "":
			silent++
		default:
			wrong[p.Answers[i]]++
		}
	}
	sizes := make([]int, 0, len(wrong))
	for _, n := range wrong {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	won := 0.0
	for j := 1; j <= min(right, k); j++ {
		for t, ways := range drawOthers(sizes, silent, k-j, j) {
			won += choose(right, j) * ways / float64(t+1)
		}
	}
	return won / choose(len(p.Correct), k)
}

// drawOthers is the number of ways to draw m samples of other answers and silent ones so
// that no answer has more than most votes, by how many have exactly so many.
func drawOthers(sizes []int, silent, m, most int) []float64 {
	width := 1 // for each number of answers that can have so many votes in m, and for none
	for _, size := range sizes {
		if size >= most && width <= m/most {
			width++
		}
	}
	// ways[d*width+t] of drawing d samples with t answers at most.
	ways, next := make([]float64, (m+1)*width), make([]float64, (m+1)*width)
	for d := range min(m, silent) + 1 {
		ways[d*width] = choose(silent, d)
	}
	for _, size := range sizes {
		clear(next)
		for n := range min(size, most, m) + 1 {
			tied := 0
			if n == most {
				tied = 1
			}
			of := choose(size, n)
			for d := n; d <= m; d++ {
				for t := tied; t < width; t++ {
					next[d*width+t] += ways[(d-n)*width+t-tied] * of
				}
			}
		}
		ways, next = next, ways
	}
	return ways[m*width:]
}

func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	out := 1.0
	for i := 1; i <= min(k, n-k); i++ {
		out = out * float64(n-min(k, n-k)+i) / float64(i)
	}
	return math.Round(out)
}

func enough(ps []Problem, k int) error {
	if k < 1 {
		return fmt.Errorf("k is %d, want at least 1", k)
	}
	for _, p := range ps {
		if len(p.Correct) < k {
			return fmt.Errorf("problem %s has %d samples, and k is %d", p.ID, len(p.Correct), k)
		}
	}
	return nil
}

// overProblems is the mean of a score of problems, with Wilson's interval for as many
// independent trials as the spread of the scores is worth, and Student's quantile in place
// of the normal one (Wilson 1927; Kish 1965 for the effective number of trials).
func overProblems(ps []Problem, score func(Problem) float64) Estimate {
	scores := make([]float64, len(ps))
	for i, p := range ps {
		scores[i] = score(p)
	}
	return Mean(scores)
}

// Mean returns the mean of scores in 0 to 1, one for each problem.
func Mean(scores []float64) Estimate {
	n := float64(len(scores))
	out := Estimate{Problems: len(scores)}
	if n == 0 {
		return out
	}
	mean, variance := moments(scores)
	out.Value = mean
	if n == 1 {
		out.High = 1
		return out
	}
	trials := n // where all scores are equal but for rounding, each is one trial
	if spread := mean * (1 - mean); variance > slack*slack && spread > 0 {
		trials = max(n, spread/(variance/n))
	}
	q := studentQuantile((1+confidence)/2, n-1)
	scale := 1 + q*q/trials
	middle := (mean + q*q/(2*trials)) / scale
	half := q / scale * math.Sqrt(mean*(1-mean)/trials+q*q/(4*trials*trials))
	out.Low, out.High = max(0, min(mean, middle-half)), min(1, max(mean, middle+half))
	return out
}

// moments are the mean and the unbiased variance, summed in order of size so that they do
// not depend on the order of problems.
func moments(xs []float64) (mean, variance float64) {
	sorted := slices.Sorted(slices.Values(xs))
	n := float64(len(sorted))
	for _, x := range sorted {
		mean += x
	}
	mean /= n // once, so that the mean of n ones is 1
	if n < 2 {
		return mean, 0
	}
	for _, x := range sorted {
		variance += (x - mean) * (x - mean) / (n - 1)
	}
	return mean, variance
}

// Student is the mean of numbers of any size, such as the results of seeds, and half the
// width of its 95 % interval by Student's t. Of one number alone half is NaN: it says
// nothing of the next one.
func Student(xs []float64) (mean, half float64) {
	if len(xs) == 0 {
		return math.NaN(), math.NaN()
	}
	mean, variance := moments(xs)
	n := float64(len(xs))
	if n < 2 {
		return mean, math.NaN()
	}
	return mean, studentQuantile((1+confidence)/2, n-1) * math.Sqrt(variance/n)
}
