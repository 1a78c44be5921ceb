package passes

// Program is a graph function; each shape of its inputs is a graph.
type Program struct {
	Objective Objective
	Kind      Kind
}

// String is like "grpo update".
func (p Program) String() string { return p.Objective.String() + " " + p.Kind.String() }

// Objective is the objective of a program.
type Objective int

// The objectives.
const (
	Supervised Objective = iota
	Policy
)

// String is the short name, as in reports.
func (o Objective) String() string { return [...]string{"sft", "grpo"}[o] }

// Kind is the kind of a program.
type Kind int

// The kinds. Up to Update they work on a microbatch.
const (
	Score     Kind = iota // log-probabilities, and entropies where the objective selects by them
	Reference             // log-probabilities under the reference policy
	Gradient              // measures, and a gradient for each trained tensor
	Update                // measures and norm; the gradients go through the optimizer in the same graph
	Add                   // the sum of two sets of gradients
	Apply                 // the optimizer on given gradients
	Copy                  // copies of the values that an update changes
)

// String is the short name, as in errors.
func (k Kind) String() string {
	return [...]string{"score", "reference", "gradient", "update", "add", "apply", "copy"}[k]
}
