package artifact

import (
	"fmt"
	"path"
	"regexp"
)

// AblationRoot is the folder of all ablations.
const AblationRoot = "ablations"

var ablationIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$`)

// CheckAblationID reports what is wrong with the id of an ablation, if anything. The id is
// shorter than that of a run, which adds an arm and a seed to it.
func CheckAblationID(id string) error {
	if !ablationIDForm.MatchString(id) {
		return fmt.Errorf("id %q: want 1 to 30 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit", id)
	}
	return nil
}

// Ablation makes the keys of one ablation. Its runs have folders of their own.
type Ablation struct{ ID string }

// Dir is the folder of the ablation.
func (a Ablation) Dir() string { return path.Join(AblationRoot, a.ID) }

// Plan is the key of the ablation's plan.
func (a Ablation) Plan() string { return path.Join(a.Dir(), "plan.json") }

// Ended reports how a run of the ablation ended.
func (a Ablation) Ended(runID string) string { return path.Join(a.Dir(), "ended", runID+".json") }

// Result is one of the files that show what came out.
func (a Ablation) Result(name string) string { return path.Join(a.Dir(), name) }
