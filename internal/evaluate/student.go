package evaluate

import "math"

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
