package chain

import (
	"fmt"
	"io"
	"strings"
)

// maxRemarks is how many objects that are no damage Print prints.
const maxRemarks = 10

// Print prints what was found, one object a line.
func (r Report) Print(out io.Writer) error {
	var b strings.Builder
	state := "continues, or ended without a summary"
	if r.Ended {
		state = "ended"
	}
	fmt.Fprintf(&b, "run %s (%s): %d steps (%d to %d), %d manifests, %d objects, %.1f MB read; %d damaged\n",
		r.RunID, state, r.Steps, r.First, r.Last, r.Manifests, r.Objects, float64(r.Bytes)/1e6, len(r.Damage))
	if r.Deleted > 0 {
		fmt.Fprintf(&b, "%d objects were deleted by retention, as the chain says\n", r.Deleted)
	}
	for _, m := range r.MadeBy {
		fmt.Fprintf(&b, "made by %s\n", m)
	}
	for _, f := range r.Damage {
		fmt.Fprintln(&b, f)
	}
	for i, f := range r.Remarks {
		if i == maxRemarks { // a step under way has as many as it has objects
			fmt.Fprintf(&b, "%d more objects changed later or came later: --json has them\n", len(r.Remarks)-i)
			break
		}
		fmt.Fprintln(&b, f)
	}
	if r.Manifests > 0 {
		fmt.Fprintf(&b, "link %s\nseal %s\n", r.Head.Link, r.Head.Seal)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Err returns an error if the run differs from its chain or has none.
func (r Report) Err() error {
	switch {
	case len(r.Damage) > 0:
		return fmt.Errorf("run %s: %d objects are not what the chain says", r.RunID, len(r.Damage))
	case r.Manifests == 0:
		return fmt.Errorf("run %s has no chain yet: it begins with the first step", r.RunID)
	default:
		return nil
	}
}
