package question

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"temper/trainer"
	"temper/trainer/device"
	"temper/trainer/packing"
)

// Graphs are the programs that a run compiles.
type Graphs struct {
	packing.Shapes
	// Packed is the padding with several sequences a row.
	Packed float64 `json:"padding_packed"`
}

// Graphs returns the programs that the run of the question compiles on a mesh; nil without a
// run, and on the Go backend.
func (q *Question) Graphs(mesh device.Mesh) *Graphs {
	if q.Run == "" || !q.Request.Device.Fused {
		return nil
	}
	c := trainer.Config{
		Backend: "xla:gpu", Mesh: mesh, Model: q.Request.Model, MicrobatchTokens: q.run.RL.MicrobatchTokens, Pack: q.Request.Packed,
		Work: packing.WorkOf(q.run),
	}
	choice, _ := c.Choice()
	c.Pack = true
	packed, _ := c.Choice()
	return &Graphs{choice, packed.Padding}
}

// GraphsText describes programs.
func (q *Question) GraphsText(c *Graphs) string {
	if c == nil {
		return ""
	}
	work := packing.WorkOf(q.run)
	text := fmt.Sprintf("programs: %d, of at most %d (trainer.graphs.max); passes of %s for policy updates", c.Graphs, work.MaxGraphs, shapesText(c.Policy))
	if len(c.Supervised) > 0 {
		text += fmt.Sprintf(", of %s for supervised ones", shapesText(c.Supervised))
	}
	text += fmt.Sprintf("; %d programs without a shape\n", c.Fixed)
	padding := fmt.Sprintf("padding: %.0f %% of the tokens of passes, with sequences of %d tokens on average (trainer.graphs.mean_tokens)",
		100*c.Padding, cmp.Or(work.MeanTokens, work.MaxTokens/3))
	if !q.Request.Packed {
		padding += fmt.Sprintf("; with rl.pack %.0f %%", 100*c.Packed)
	}
	return text + padding + fmt.Sprintf("; compiling a program is taken for %v (trainer.graphs.compile_time)\n", c.CompileTime.Round(time.Second))
}

// shapesText is like "3 x 3584, 1 x 14336": rows by tokens.
func shapesText(shapes []packing.Shape) string {
	out := make([]string, len(shapes))
	for i, s := range shapes {
		out[i] = fmt.Sprintf("%d x %d", s.Rows, s.Length)
	}
	return strings.Join(out, ", ")
}
