package grpo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/internal/rl"
)

// DefaultEstimator is the estimator of a configuration that names none.
const DefaultEstimator = "group"

// PassAtK is the estimator that needs a k.
const PassAtK = "pass_at_k"

// stdEpsilon keeps the division by a small deviation finite.
const stdEpsilon = 1e-6

// Estimator turns the rewards of a group into its advantages. A new one is a row of
// Estimators and a function.
type Estimator struct {
	// Name is the value of rl.advantage.
	Name string
	// Advantages returns one advantage for each reward. It gets two rewards or more, which
	// are not all equal. k is rl.advantage_k.
	Advantages func(rewards []float64, k int) []float64
	// Whitens reports whether the advantages of a batch are normalized together
	// afterwards; see Whitening.
	Whitens bool
}

// Estimators returns all estimators, the default first.
func Estimators() []Estimator {
	return []Estimator{
		{Name: DefaultEstimator, Advantages: standardized},
		{Name: "leave_one_out", Advantages: leaveOneOut},
		{Name: "no_deviation", Advantages: centered},
		{Name: "reinforce_plus_plus_baseline", Advantages: centered, Whitens: true},
		{Name: PassAtK, Advantages: passAtK},
	}
}

// EstimatorNames returns the values of rl.advantage.
func EstimatorNames() []string {
	var names []string
	for _, e := range Estimators() {
		names = append(names, e.Name)
	}
	return names
}

// estimatorByName returns the estimator of that name, the default one for "".
func estimatorByName(name string) (Estimator, error) {
	all := Estimators()
	i := slices.IndexFunc(all, func(e Estimator) bool { return e.Name == cmp.Or(name, DefaultEstimator) })
	if i < 0 {
		return Estimator{}, fmt.Errorf("rl.advantage is %q, want one of %s", name, strings.Join(EstimatorNames(), ", "))
	}
	return all[i], nil
}

// advantages returns the advantages of the trajectories of one group. Equal rewards,
// and a single one, give zeros.
func (e Estimator) advantages(trajectories []rl.Trajectory, k int) []float32 {
	out := make([]float32, len(trajectories))
	if uniform(trajectories) {
		return out
	}
	rewards := make([]float64, len(trajectories))
	for i := range trajectories {
		rewards[i] = trajectories[i].Reward
	}
	for i, a := range e.Advantages(rewards, k) {
		out[i] = float32(a)
	}
	return out
}

// uniform reports whether all rewards are equal.
func uniform(trajectories []rl.Trajectory) bool {
	for i := range trajectories {
		if trajectories[i].Reward != trajectories[0].Reward {
			return false
		}
	}
	return true
}

// standardized returns (r - mean)/(std + 1e-6) with the unbiased deviation (GRPO,
// arXiv 2402.03300, section 4.1.2).
func standardized(rewards []float64, _ int) []float64 {
	out := centered(rewards, 0)
	squares := 0.0
	for _, d := range out {
		squares += d * d
	}
	std := math.Sqrt(squares / float64(len(rewards)-1))
	for i := range out {
		out[i] /= std + stdEpsilon
	}
	return out
}

// centered returns r - mean (Dr. GRPO, arXiv 2503.20783, section 3.2). It is also the
// first half of REINFORCE++ with baseline (arXiv 2501.03262).
func centered(rewards []float64, _ int) []float64 {
	mean := 0.0
	for _, r := range rewards {
		mean += r / float64(len(rewards))
	}
	out := make([]float64, len(rewards))
	for i, r := range rewards {
		out[i] = r - mean
	}
	return out
}

// leaveOneOut returns r minus the mean of the other rewards, which is (r - mean) n/(n-1)
// (RLOO, arXiv 2402.14740, equation 8).
func leaveOneOut(rewards []float64, _ int) []float64 {
	out := centered(rewards, 0)
	n := float64(len(rewards))
	for i := range out {
		out[i] *= n / (n - 1)
	}
	return out
}

// passAtK returns (R_i - R)/(S + 1e-6). A set of k trajectories has the highest reward
// of its members; R and S are mean and deviation over all sets of the group, and R_i is
// the mean over the sets with trajectory i. For rewards of 0 and 1 that is the analytic
// advantage of pass@k training (arXiv 2508.10751): with N trajectories, M of them wrong,
//
//	R = 1 - C(M, k)/C(N, k)        S = sqrt(R (1 - R))
//	right: (1 - R)/S               wrong: (1 - R - C(M-1, k-1)/C(N-1, k-1))/S
//
// A group of at most k trajectories has one set, and its advantages are 0.
func passAtK(rewards []float64, k int) []float64 {
	n := len(rewards)
	out := make([]float64, n)
	if k < 1 || n <= k {
		return out
	}
	order := make([]int, n) // by reward, ascending
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rewards[a], rewards[b]) })
	best := func(rank int) float64 { return ratio(rank, n-1, k-1) } // of the sets with this one, those in which it is the best
	mean, squares := 0.0, 0.0
	for rank, i := range order {
		mean += best(rank) * rewards[i] * float64(k) / float64(n)
	}
	for rank, i := range order {
		d := rewards[i] - mean
		squares += best(rank) * d * d * float64(k) / float64(n)
	}
	above := 0.0 // the part of R_i from sets with a better one than i
	for rank := n - 1; rank >= 0; rank-- {
		i := order[rank]
		out[i] = (rewards[i]*best(rank) + above - mean) / (math.Sqrt(squares) + stdEpsilon)
		above += rewards[i] * ratio(rank-1, n-2, k-2) * float64(k-1) / float64(n-1)
	}
	return out
}

// ratio returns C(a, k)/C(b, k) for a <= b: no step of it overflows.
func ratio(a, b, k int) float64 {
	out := 1.0
	for i := range k {
		out *= float64(max(0, a-i)) / float64(b-i)
	}
	return out
}
