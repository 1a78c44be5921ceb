package trainerbench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/tools/bench/meter"
	"temper/trainer/device"
)

// The product that measures the machine: large enough for the kernel's full
// speed, small enough for the cache of a core.
const (
	peakSize  = 512
	peakChain = 16 // products in one call
	peakCalls = 4
)

// Peak is the speed of float32 matrix products of the CPU backend, by all
// cores at once, each with one of its own.
type Peak struct {
	Cores int `json:"cores"`
	// PerCore counts floating-point operations in a second of processor time.
	PerCore float64 `json:"flops_per_core"`
	// Total counts them in a second of wall time, over all cores.
	Total float64 `json:"flops_total"`
}

// MeasurePeak multiplies matrices of 512 by 512 on each core; the best of the
// given number of rounds counts.
func MeasurePeak(rounds int) (Peak, error) {
	cores := runtime.GOMAXPROCS(0)
	p := Peak{Cores: cores}
	var chains []*chain
	defer func() {
		for _, c := range chains {
			c.close()
		}
	}()
	for range cores {
		c, err := newChain()
		if err != nil {
			return Peak{}, fmt.Errorf("measure the matrix product: %w", err)
		}
		chains = append(chains, c)
	}
	if err := runAll(chains, 1); err != nil { // compiles
		return Peak{}, fmt.Errorf("measure the matrix product: %w", err)
	}
	work := 2 * float64(peakSize*peakSize*peakSize) * peakChain * peakCalls * float64(cores)
	for range rounds {
		begin := meter.Now()
		if err := runAll(chains, peakCalls); err != nil {
			return Peak{}, fmt.Errorf("measure the matrix product: %w", err)
		}
		c := begin.Since(1)
		p.PerCore, p.Total = max(p.PerCore, meter.Rate(work, c.CPU)), max(p.Total, meter.Rate(work, c.Wall))
	}
	return p, nil
}

// chain is a graph of products that depend on one another, on a device of its own.
type chain struct {
	exec *graph.Exec
	in   *tensors.Tensor
	end  func()
}

func newChain() (*chain, error) {
	backend, err := device.Open("go:ops_sequential")
	if err != nil {
		return nil, err
	}
	exec, err := graph.NewExec(backend, func(x *graph.Node) *graph.Node {
		y := x
		for range peakChain {
			y = graph.DotGeneral(y, []int{1}, nil, x, []int{0}, nil)
		}
		return graph.ReduceAllMax(y)
	})
	if err != nil {
		return nil, err
	}
	// Equal entries of 1/n stay what they are, however often they are multiplied.
	data := slices.Repeat([]float32{1.0 / peakSize}, peakSize*peakSize)
	return &chain{exec: exec, in: tensors.FromFlatDataAndDimensions(data, peakSize, peakSize), end: backend.Finalize}, nil
}

func (c *chain) close() {
	c.exec.Finalize()
	c.end()
}

func (c *chain) multiply(calls int) error {
	for range calls {
		out, err := c.exec.Call(c.in)
		if err != nil {
			return err
		}
		if v, ok := out[0].Value().(float32); !ok || v < 0.99/peakSize || v > 1.01/peakSize {
			return fmt.Errorf("product is %v, want %v", out[0].Value(), 1.0/peakSize)
		}
	}
	return nil
}

// runAll runs the chains at the same time.
func runAll(chains []*chain, calls int) error {
	errs := make([]error, len(chains))
	var wg sync.WaitGroup
	for i, c := range chains {
		wg.Go(func() { errs[i] = c.multiply(calls) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
