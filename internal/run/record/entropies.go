package record

import (
	"encoding/json"
	"fmt"
	"slices"
)

// entropyColumn is no column of the index: the trainer knows the entropies when the index
// is stored, and sealed, already.
func entropyColumn() column {
	return column{"mean_entropy", func(r *Row) any { return &r.MeanEntropy }}
}

// Entropies writes the mean entropies of trajectories of a step, in the form of an index
// without other columns.
func Entropies(rows []Row) ([]byte, error) {
	whose := slices.DeleteFunc(columns(), func(c column) bool { return c.name != "problem" && c.name != "rollout" })
	return writeColumns(rows, append(whose, entropyColumn()))
}

// Mean is the mean entropy at the sampled tokens; nil without any.
func (s *TokenStats) Mean() *float64 {
	if len(s.Entropies) == 0 {
		return nil
	}
	sum := 0.0
	for _, x := range s.Entropies {
		sum += x
	}
	return Finite(sum / float64(len(s.Entropies)))
}

// place names a trajectory in a step.
type place struct {
	problem string
	rollout int
}

func readEntropies(data []byte) (map[place]*float64, error) {
	rows, err := ReadIndex(data)
	out := make(map[place]*float64, len(rows))
	for _, r := range rows {
		out[place{r.Problem, r.Rollout}] = r.MeanEntropy
	}
	return out, err
}

// AddEntropies gives rows the entropies that are stored beside their index.
func AddEntropies(rows []Row, data []byte) error {
	of, err := readEntropies(data)
	for i := range rows {
		rows[i].MeanEntropy = of[place{rows[i].Problem, rows[i].Rollout}]
	}
	return err
}

// AddEntropies adds the column of entropies, which is stored beside an index.
func (c Columns) AddEntropies(data []byte) error {
	of, err := readEntropies(data)
	if err != nil {
		return err
	}
	problems, at, known := c.Words("problem")
	rollouts, numbered := c.Numbers("rollout")
	if !known || !numbered {
		return fmt.Errorf("%w: it does not say whose its rows are", errIndex)
	}
	values := make([]*float64, c.Num)
	for i := range values {
		values[i] = of[place{problems[at[i]], int(rollouts[i])}]
	}
	c.Values[entropyColumn().name], err = json.Marshal(values)
	return err
}
