// Package series holds arithmetic that numbers of a run share.
package series

import "time"

// Ratio is part by whole, 0 where there is no whole.
func Ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// PerSecond is a rate, 0 where no time has passed.
func PerSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
