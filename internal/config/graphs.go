package config

import (
	"cmp"
	"time"
)

// Graphs bounds the programs that XLA compiles for the passes of a run, and says what their
// shapes are chosen from. It decides which sequences share a pass, and so the last bits of
// sums. The Go backend has no part in it.
type Graphs struct {
	// Max is the most programs of a run. More of them have shapes nearer to the lengths of
	// sequences, and compute less padding.
	Max int `yaml:"max,omitempty" json:"max,omitempty" range:"0|3..64" unit:"programs" empty:"6"`
	// MeanTokens is the mean length that is expected of sequences. 0 stands for a third of
	// model.max_context.
	MeanTokens int `yaml:"mean_tokens,omitempty" json:"mean_tokens,omitempty" range:"0.." unit:"tokens"`
	// CompileTime is the time to compile one program on the device of the run, as the log
	// of the trainer reports it. 0 stands for an estimate.
	CompileTime time.Duration `yaml:"compile_time,omitempty" json:"compile_time,omitempty" range:"0|1ms..24h"`
}

// defaultMaxGraphs is Graphs.Max of a run that does not say.
const defaultMaxGraphs = 6

// Most is Max with its default.
func (g Graphs) Most() int { return cmp.Or(g.Max, defaultMaxGraphs) }
