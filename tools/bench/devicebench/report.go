package devicebench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Report is what a run of all cases found.
type Report struct {
	When    time.Time `json:"when"`
	Build   string    `json:"build"`
	Backend string    `json:"backend"`
	Plugin  string    `json:"plugin"` // package and version, or the path
	Device  string    `json:"device"` // what the driver calls it
	Devices int       `json:"devices"`
	// Kind is the data sheet, and Peak its operations a second of one device; empty where
	// none fits.
	Kind string  `json:"kind,omitempty"`
	Peak float64 `json:"peak_flops,omitempty"`
	Host string  `json:"host"` // cores and load at the start
	Size Size    `json:"size"`
	// Tests that ran on the backend, from `go test -json`; none where no file was named.
	Tests   []Test   `json:"tests"`
	Results []Result `json:"results"`
}

// Failures are the lines of what did not pass.
func (r *Report) Failures() []string {
	var out []string
	for _, t := range r.Tests {
		if t.Outcome == "fail" {
			out = append(out, "test "+t.String())
		}
	}
	for _, c := range r.Results {
		if c.Error != "" {
			out = append(out, c.Case.String()+": "+c.Error)
		}
	}
	return out
}

// Save writes report.json and report.md into a folder.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o600); err != nil {
		return err
	}
	var text strings.Builder
	r.Markdown(&text)
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(text.String()), 0o600)
}

// Markdown writes the report for people.
func (r *Report) Markdown(w io.Writer) {
	fmt.Fprintf(w, "# %s, %s\n\n", r.Backend, r.When.UTC().Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(w, "- %s\n- plugin: %s\n- device: %d x %s\n", r.Build, r.Plugin, r.Devices, r.Device)
	if r.Peak > 0 {
		fmt.Fprintf(w, "- data sheet: %s, %.0f TFLOP/s in bfloat16; MFU is the share of it\n", r.Kind, r.Peak/1e12)
	}
	fmt.Fprintf(w, "- host: %s\n\n## Outcome\n\n", r.Host)
	if failures := r.Failures(); len(failures) > 0 {
		for _, f := range failures {
			fmt.Fprintf(w, "- FAILED: %s\n", f)
		}
	} else {
		fmt.Fprintln(w, "Everything passed.")
	}
	r.tests(w)
	r.checks(w)
	r.steps(w)
	r.decoding(w)
}

func (r *Report) tests(w io.Writer) {
	if len(r.Tests) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Tests\n\n| test | outcome | s |\n|---|---|---|\n")
	for _, t := range r.Tests {
		fmt.Fprintf(w, "| %s | %s | %.1f |\n", t, t.Outcome, t.Seconds)
	}
}

func (r *Report) checks(w io.Writer) {
	fmt.Fprint(w, "\n## Against the backend go\n\nThree updates and a generation of a small policy: the largest differences.\n\n| devices | loss | log-probabilities | weights, of their movement | graphs | s |\n|---|---|---|---|---|---|\n")
	for _, c := range r.Results {
		if k := c.Check; k != nil {
			fmt.Fprintf(w, "| %s | %.2g | %.2g | %.2g | %d | %.1f |\n", one(c.Mesh), abs(k.Loss-k.LossGo), max(k.Logprobs, k.Generated), k.Weights, k.Graphs, k.Seconds)
		}
	}
}

func (r *Report) steps(w io.Writer) {
	fmt.Fprint(w, "\n## Training\n\nRows and tokens are of one data replica; GB of one device. Used is what the driver counts, the buffers of the runtime with it.\n\n",
		"| network | devices | rows x tokens | type | first step, s | step, s | tokens/s | MFU | planned | compiled | used | process | PyTorch eager, compile: tokens/s | GB |\n",
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range r.Results {
		if c.Work != Train || c.Error != "" {
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %d x %d | %s | %.1f | %.3f | %.0f | %s | %.3f, %+.1f %% | %.3f | %s | %.3f | %s |\n",
			c.Model, one(c.Mesh), c.Rows, c.Tokens, c.Compute, c.FirstStep, c.Step, c.TokensPerSecond, share(c.MFU),
			gb(c.Planned), 100*(float64(c.Planned)/float64(max(1, c.Compiled))-1), gb(c.Compiled), known(c.Used), gb(c.PeakRSS), peer(c))
	}
}

func (r *Report) decoding(w io.Writer) {
	fmt.Fprint(w, "\n## Decoding\n\n| network | at once | tokens/s | CPU-s a token |\n|---|---|---|---|\n")
	for _, c := range r.Results {
		if c.Work == Decode && c.Error == "" {
			fmt.Fprintf(w, "| %s | %d | %.0f | %.2g |\n", c.Model, c.Slots, c.TokensPerSecond, c.CPUSeconds/max(1, c.Step*c.TokensPerSecond))
		}
	}
}

// peer is the two columns of PyTorch.
func peer(c Result) string {
	if c.TorchError != "" {
		return c.TorchError + " | -"
	}
	var rates, peaks []string
	for _, s := range c.Torch {
		rates, peaks = append(rates, fmt.Sprintf("%.0f", s.TokensPerSecond)), append(peaks, fmt.Sprintf("%.3f", gb(s.Peak)))
	}
	if len(rates) == 0 {
		return "- | -"
	}
	return strings.Join(rates, ", ") + " | " + strings.Join(peaks, ", ")
}

func one(mesh string) string {
	if mesh == "" {
		return "1"
	}
	return mesh
}

func share(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

func known(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", gb(bytes))
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }

func abs(x float64) float64 { return max(x, -x) }
