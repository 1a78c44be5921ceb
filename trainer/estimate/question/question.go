// Package question turns a question of a user to the estimator, by names and the configuration
// of a run, into a request. It computes nothing.
//
// Invariant: a flag of the user overrides the configuration.
package question

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"temper/internal/config"
	"temper/trainer/device"
	"temper/trainer/estimate"
)

// Question is a question of a user.
type Question struct {
	// Model, Devices and Mesh are names; see estimate.Model and estimate.ParseDevices.
	Model, Devices, Mesh string
	// Run is a configuration file, and About its summary, set by Resolve.
	Run, About string
	// F32 computes in float32.
	F32 bool
	// Compile is an XLA backend that compiles the step; empty is none.
	Compile string
	// Minibatches is the number of updates in a step.
	Minibatches int
	Request     estimate.Request
	run         config.Run
}

// Resolve completes Request from the names and the configuration. stated reports
// whether the user gave a flag. The error has a line for each mistake.
func (q *Question) Resolve(stated func(flag string) bool) error {
	var errs []error
	add := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	r := &q.Request
	var err error
	r.Model, err = estimate.Model(q.Model)
	add("model", err)
	r.NumDevices, r.Device, err = estimate.ParseDevices(q.Devices)
	add("devices", err)
	r.Mesh, err = parseMesh(q.Mesh)
	add("mesh", err)
	if q.Run != "" && len(errs) == 0 {
		add("run", q.fromRun(stated))
	}
	if q.Minibatches < 1 {
		add("minibatches", fmt.Errorf("%d, want at least 1", q.Minibatches))
	}
	if q.Compile != "" && (!r.Device.Fused || r.Accumulate || r.Reference || r.Slots > 0 || q.Minibatches > 1) {
		add("compile", errors.New("compiles an update of one pass on GPUs: leave out --accumulate, --reference, --slots and --minibatches, and name GPUs with --devices"))
	}
	if strings.Contains(q.Compile, "cpu") {
		r.Device.Block = 0 // the plugin of a CPU compiles it
	}
	r.SeveralUpdates = q.Minibatches > 1
	r.Half = !q.F32
	if r.Context == 0 {
		r.Context = r.Length
	}
	return errors.Join(errs...)
}

// parseMesh parses "4x2"; for the empty mesh the estimator chooses one.
func parseMesh(s string) (device.Mesh, error) {
	if s == "" {
		return device.Mesh{}, nil
	}
	data, model, _ := strings.Cut(s, "x")
	d, err1 := strconv.Atoi(data)
	m, err2 := strconv.Atoi(model)
	if err1 != nil || err2 != nil || d < 1 || m < 1 {
		return device.Mesh{}, fmt.Errorf("%q, want data x model, like 4x2", s)
	}
	return device.Mesh{Data: d, Model: m, FSDP: d > 1}, nil
}
