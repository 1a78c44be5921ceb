package estimate

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"temper/trainer/device"
)

// Request is a question to the estimator.
type Request struct {
	Config
	NumDevices int
	// StepTokens is the number of tokens of an update on all devices, 0 for one pass.
	// MeanLength is the mean length of their sequences, 0 for the length of a row.
	StepTokens, MeanLength int
	// MFU is the assumed model FLOP utilisation.
	MFU float64
}

// Summary is the answer.
type Summary struct {
	Device     Device `json:"device"`
	NumDevices int    `json:"num_devices"`
	Mesh       string `json:"mesh"`
	// Over is the mesh.
	Over       device.Mesh `json:"-"`
	Parameters int         `json:"parameters"`
	PassTokens int         `json:"pass_tokens"` // of all devices
	Report     Report      `json:"report"`
	MFU        float64     `json:"mfu"`
	StepTokens int         `json:"step_tokens"`
	FLOPs      FLOPs       `json:"flops"` // of a step
	StepTime   float64     `json:"step_seconds"`
	// CacheToken is the size in bytes of the keys and values of one token. CacheTokens is
	// the number of tokens that fit into the headroom of a device.
	CacheToken  int64 `json:"cache_bytes_per_token"`
	CacheTokens int64 `json:"cache_tokens_in_headroom"`
	// Advice lists single changes with their peaks, for a plan that does not fit.
	Advice []string `json:"advice,omitempty"`
	how    string
}

// Plan answers a request. It chooses a mesh if the request has none.
func Plan(r Request) (Summary, error) {
	errs := []error{r.checkNumbers(), within("step tokens", r.StepTokens, 0, 1<<40), within("mean tokens", r.MeanLength, 0, 1<<30)}
	if !(r.MFU > 0 && r.MFU <= 1) {
		errs = append(errs, fmt.Errorf("mfu: %v, want more than 0 and at most 1", r.MFU))
	}
	if err := errors.Join(errs...); err != nil {
		return Summary{}, err
	}
	if r.Mesh.NumDevices() == 0 {
		mesh, err := Choose(r.Config, r.NumDevices)
		if err != nil {
			return Summary{}, err
		}
		r.Mesh = mesh
	}
	if n := r.Mesh.NumDevices(); n != r.NumDevices {
		return Summary{}, fmt.Errorf("mesh %v: %d devices, there are %d", r.Mesh, n, r.NumDevices)
	}
	report, err := Estimate(r.Config)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{
		Device: r.Device, NumDevices: r.NumDevices, Mesh: r.Mesh.String(), Over: r.Mesh, Parameters: r.Model.NumParameters(),
		PassTokens: r.Rows * r.Length * r.Mesh.Data, Report: report, MFU: r.MFU, StepTokens: r.StepTokens,
		CacheToken: CacheBytes(r.Model, int(r.width())), how: r.choices(),
	}
	if s.StepTokens == 0 {
		s.StepTokens = s.PassTokens
	}
	mean := r.MeanLength
	if mean == 0 {
		mean = r.Length
	}
	s.FLOPs = Train(r.Model, s.StepTokens, mean, r.Remat)
	s.StepTime = s.FLOPs.Time(r.NumDevices, r.Device, r.MFU).Seconds()
	s.CacheTokens = max(0, report.Headroom) / s.CacheToken
	if !report.Fits {
		s.Advice = advise(r)
	}
	return s, nil
}

// choices names the choices of a configuration.
func (c Config) choices() string {
	words := []string{"float32"}
	if c.width() == 2 {
		words[0] = "bfloat16"
	}
	add := func(on bool, word string) {
		if on {
			words = append(words, word)
		}
	}
	add(c.Remat, "remat")
	add(c.LogitsChunk > 0, fmt.Sprintf("vocabulary by %d", c.LogitsChunk))
	add(c.inLoops(), "attention in blocks")
	add(c.Device.Fused && !c.inLoops(), "attention by matrices")
	add(c.Accumulate, "several passes to an update")
	add(c.Packed, "packed")
	add(c.Reference, "reference policy")
	add(c.SeveralUpdates, "several updates to a step")
	return strings.Join(words, ", ")
}

// advise tries single changes and describes the effect of each.
func advise(r Request) []string {
	var out []string
	try := func(what string, change func(*Config)) {
		c := r.Config
		change(&c)
		report, err := Estimate(c)
		if err != nil {
			return
		}
		verdict := "fits"
		if !report.Fits {
			verdict = fmt.Sprintf("%.1f GB too many", -gigabytes(report.Headroom))
		}
		out = append(out, fmt.Sprintf("%s: peak %.1f GB, %s", what, gigabytes(report.Peak), verdict))
	}
	if !r.Remat {
		try("recompute layers (--remat)", func(c *Config) { c.Remat = true })
	}
	if r.LogitsChunk == 0 && r.Model.VocabSize > 16384 {
		try("take the vocabulary in pieces (--logits-chunk 16384)", func(c *Config) { c.LogitsChunk = 16384 })
	}
	if r.Rows > 1 {
		try(fmt.Sprintf("fewer sequences in a pass (--sequences %d)", r.Rows/2), func(c *Config) { c.Rows /= 2 })
	}
	if r.Slots > 0 {
		try("an engine elsewhere (--slots 0)", func(c *Config) { c.Slots = 0 })
	}
	for model := 1; model <= r.NumDevices; model++ {
		if r.NumDevices%model != 0 || model == r.Mesh.Model {
			continue
		}
		data := r.NumDevices / model
		try(fmt.Sprintf("another mesh (--mesh %dx%d)", data, model), func(c *Config) {
			c.Mesh = device.Mesh{Data: data, Model: model, FSDP: data > 1}
		})
	}
	try(fmt.Sprintf("shorter rows (--tokens %d)", r.Length/2), func(c *Config) { c.Length /= 2 })
	return out
}

// Text returns the summary as text. Sizes are in GB of 10^9 bytes.
func (s Summary) Text(w io.Writer) {
	fmt.Fprintf(w, "%.3g billion parameters on %d x %s: %s; %s\n", float64(s.Parameters)/1e9, s.NumDevices, s.Device.Name, s.Mesh, s.how)
	fmt.Fprintf(w, "%-12s %-50s %-24s %-7s %9s\n", "group", "what", "bytes", "when", "GB")
	for _, i := range s.Report.Items {
		fmt.Fprintf(w, "%-12s %-50s %-24s %-7s %9.3f\n", i.Group, i.Name, i.How, i.Stage, gigabytes(i.Bytes))
	}
	fmt.Fprintf(w, "peak %.3f of %.3f GB a device (%s), headroom %.3f: ", gigabytes(s.Report.Peak), gigabytes(s.Report.Memory), s.Report.PeakAt, gigabytes(s.Report.Headroom))
	if s.Report.Fits {
		fmt.Fprintf(w, "fits\n")
	} else {
		fmt.Fprintf(w, "does not fit\n")
	}
	for _, a := range s.Advice {
		fmt.Fprintf(w, "  %s\n", a)
	}
	fmt.Fprintf(w, "pass: %d tokens on all devices; step: %d tokens, %.3g FLOP (%.3g with recomputation), %v at an MFU of %.0f %%\n",
		s.PassTokens, s.StepTokens, s.FLOPs.Model, s.FLOPs.Hardware, roundTime(s.StepTime), 100*s.MFU)
	fmt.Fprintf(w, "rollouts: %d bytes of keys and values a token, %d tokens in the headroom of a device\n", s.CacheToken, s.CacheTokens)
}

func gigabytes(n int64) float64 { return float64(n) / gb }

// roundTime keeps three digits.
func roundTime(seconds float64) time.Duration {
	d := time.Duration(seconds * float64(time.Second))
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}
