// Package queueing predicts the response times of a service from the cost of one
// call, and turns them into a number of cores. It measures nothing.
//
// Invariant: a prediction follows from the station alone.
package queueing

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Station is the queueing model of a service: a queue before Cores equal cores. A
// call needs Overhead (the sandbox, the transport and, on a shared machine, the
// client) plus Own (the program itself) of processor time, in turns with other
// calls. During Idle it needs no core: it sleeps, or it is on its way. At most
// Slots calls are past the queue.
type Station struct {
	Cores    int
	Slots    int // 0 for no bound
	Overhead time.Duration
	Own      time.Duration
	Idle     time.Duration
	// Variation is the squared coefficient of variation of the demand: 0 for calls
	// that are all alike, 1 for exponential ones. It matters to an open stream only.
	Variation float64
}

// Prediction is what the model says about a load.
type Prediction struct {
	Response    time.Duration // mean, from call to answer
	PerSecond   float64
	Utilization float64 // of the cores
}

// ErrUnstable means a stream that brings more work than the cores can do.
var ErrUnstable = errors.New("the queue grows without bound")

// Demand is the core time of a call in seconds.
func (s Station) Demand() float64 { return (s.Overhead + s.Own).Seconds() }

func (s Station) check() error {
	if s.Cores < 1 || s.Demand() <= 0 || s.Idle < 0 || s.Slots < 0 || s.Variation < 0 {
		return fmt.Errorf("station %+v: needs at least one core and a demand, and nothing below zero", s)
	}
	return nil
}

// Closed predicts a population of n callers that send the next call when the last
// is answered. The n calls are always in the system, so that by Little's law
//
//	R = n / X(m),  m = min(n, Slots),
//
// where X(m) is the throughput of m calls that circulate through the cores and the
// idle time. Without idle time X = min(m, Cores)/D exactly, whatever the
// distribution of the demand D; with it the product form gives X.
func (s Station) Closed(n int) (Prediction, error) {
	if err := s.check(); err != nil {
		return Prediction{}, err
	}
	if n < 1 {
		return Prediction{}, fmt.Errorf("population of %d callers: want at least 1", n)
	}
	inside := n
	if s.Slots > 0 {
		inside = min(n, s.Slots)
	}
	x := s.throughput(inside)
	return Prediction{
		Response: seconds(float64(n) / x), PerSecond: x,
		Utilization: x * s.Demand() / float64(s.Cores),
	}, nil
}

// throughput is X(n) of the cores and a delay in product form: with j of n calls at
// the cores, which then finish min(j, k)/D calls a second, the chance of j is
// proportional to
//
//	w(j) = Idle^(n-j)/(n-j)! * D^j / (min(1, k) * ... * min(j, k)).
//
// The weights are kept as logarithms, because they would leave the range of a
// float64.
func (s Station) throughput(n int) float64 {
	d, k, z := s.Demand(), float64(s.Cores), s.Idle.Seconds()
	if z == 0 {
		return math.Min(float64(n), k) / d
	}
	weights := make([]float64, n+1) // of w(j)/w(0)
	most := 0.0
	for j := 1; j <= n; j++ {
		step := float64(n-j+1) * d / (z * math.Min(float64(j), k))
		weights[j] = weights[j-1] + math.Log(step)
		most = math.Max(most, weights[j])
	}
	var sum, done float64
	for j, w := range weights {
		share := math.Exp(w - most)
		sum += share
		done += share * math.Min(float64(j), k) / d
	}
	return done / sum
}

// Open predicts a Poisson stream of rate calls a second:
//
//	R = D + Idle + W,  W = C(k, a) * D / (k - a) * (1 + Variation)/2,  a = rate * D,
//
// with C the chance to wait in M/M/k (Erlang) and the factor of Allen and Cunneen
// for demands that are not exponential.
func (s Station) Open(rate float64) (Prediction, error) {
	if err := s.check(); err != nil {
		return Prediction{}, err
	}
	if rate <= 0 {
		return Prediction{}, fmt.Errorf("rate of %g calls a second: want more than 0", rate)
	}
	d, k := s.Demand(), float64(s.Cores)
	load := rate * d
	if load >= k {
		return Prediction{}, fmt.Errorf("%w: %.0f calls a second of %v on %d cores", ErrUnstable, rate, seconds(d), s.Cores)
	}
	wait := erlangC(s.Cores, load) * d / (k - load) * (1 + s.Variation) / 2
	response := d + s.Idle.Seconds() + wait
	if s.Slots > 0 && rate*(response-wait) >= float64(s.Slots) {
		return Prediction{}, fmt.Errorf("%w: %.0f calls a second of %v in %d slots", ErrUnstable, rate, seconds(response-wait), s.Slots)
	}
	return Prediction{Response: seconds(response), PerSecond: rate, Utilization: load / k}, nil
}

// erlangC is the chance that an arrival waits in M/M/k at an offered load a < k,
// by the recursion of Erlang B.
func erlangC(k int, a float64) float64 {
	b := 1.0
	for j := 1; j <= k; j++ {
		b = a * b / (float64(j) + a*b)
	}
	rho := a / float64(k)
	return b / (1 - rho*(1-b))
}

// Burst predicts n calls that arrive at one moment: the cores finish one every
// D/k, so that the mean is (n+1)/2 of these, and no less than a call alone.
func (s Station) Burst(n int) (Prediction, error) {
	if err := s.check(); err != nil {
		return Prediction{}, err
	}
	if n < 1 {
		return Prediction{}, fmt.Errorf("burst of %d calls: want at least 1", n)
	}
	d, k := s.Demand(), float64(s.Cores)
	response := math.Max(d, float64(n+1)/2*d/k) + s.Idle.Seconds()
	return Prediction{Response: seconds(response), PerSecond: k / d, Utilization: 1}, nil
}

// CoresFor is the smallest number of cores for which predict, given a station of that
// many, stays within target. The idle time and the demand alone must fit in it.
func (s Station) CoresFor(target time.Duration, predict func(Station) (Prediction, error)) (int, error) {
	within := func(cores int) (bool, error) {
		s.Cores = cores
		p, err := predict(s)
		if errors.Is(err, ErrUnstable) {
			return false, nil
		}
		return err == nil && p.Response <= target, err
	}
	const most = 1 << 20
	high := 1
	for ; ; high *= 2 {
		ok, err := within(high)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		if high >= most {
			return 0, fmt.Errorf("no number of cores gives %v: a call alone takes longer, or the slots are too few", target)
		}
	}
	low := high / 2 // not enough, or 0
	for low+1 < high {
		mid := (low + high) / 2
		ok, err := within(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			high = mid
		} else {
			low = mid
		}
	}
	return high, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
