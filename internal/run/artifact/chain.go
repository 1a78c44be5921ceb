package artifact

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Opening is the first manifest of the run's chain: what the run begins with.
func (l Layout) Opening() string { return l.key("opening.json") }

// Manifest is what a step has left, with the SHA-256 of each object.
func (l Layout) Manifest(step int) string { return l.Step(step, manifestName) }

// Closing is the last manifest of the chain.
func (l Layout) Closing() string { return l.key("closing.json") }

// RetiredNotes is the folder of what was deleted because nothing keeps it any more.
func (l Layout) RetiredNotes() string { return l.key("retired") }

// Retired is one note of that, by the cursor of the save and the sum of the note.
func (l Layout) Retired(cursor int, sha256 string) string {
	return l.key("retired", fmt.Sprintf("%06d-%.12s.json", cursor, sha256))
}

const manifestName = "manifest.json"

// InChain reports whether a key is that of a manifest of the chain.
func (l Layout) InChain(key string) bool {
	step, ok := l.StepOf(key)
	return key == l.Opening() || key == l.Closing() || ok && key == l.Manifest(step)
}

// SideFolders are the folders of what a run stores for good beside its steps, its
// policies and its checkpoints.
func (l Layout) SideFolders() []string {
	return []string{l.key("config"), l.key("data"), l.SFTResults(), l.key("diverged"), l.Evals(), l.Events(), l.RetiredNotes()}
}

// Aside reports whether a key is of something that no promise holds: what clocks say of
// trajectories, whole outputs, what the trainer says of tokens, copies of the records of
// steps in blocks, notes of people, and event files for other programs. A run has the same bits with and
// without it.
func Aside(key string) bool {
	parts := strings.Split(key, "/")
	switch {
	case len(parts) == 3 && parts[0] == Root && parts[2] == "notes.json":
		return true
	case len(parts) < 4 || parts[0] != Root:
		return false
	case parts[2] == "tensorboard", parts[2] == "series":
		return true
	default:
		return parts[2] == "steps" && len(parts) > 5 && (parts[4] == "times" || parts[4] == "outputs" || parts[4] == "tokens")
	}
}

// Passing reports whether a key is of something that the chain does not hold: what is
// Aside, and what is replaced or deleted in time. That are announcements and pins of
// checkpoints, shards of a batch, trajectories of groups that are not complete, groups that
// go on under a newer policy, and groups of an evaluation under way.
func (l Layout) Passing(key string) bool {
	if Aside(key) {
		return true
	}
	name := strings.TrimPrefix(key, l.Dir()+"/")
	parts := strings.Split(name, "/")
	switch parts[0] {
	case "checkpoints":
		return len(parts) > 1 && !strings.HasPrefix(parts[1], "step-")
	case "evals":
		return len(parts) > 2
	case "steps":
		return len(parts) > 2 && (parts[2] == "shards" || parts[2] == "ended" || parts[2] == "parts")
	default:
		return false
	}
}

// StepOf is the step in whose folder a key is; ok is false for other keys.
func (l Layout) StepOf(key string) (step int, ok bool) {
	name, ok := strings.CutPrefix(key, l.Steps()+"/")
	if !ok {
		return 0, false
	}
	number, _, ok := strings.Cut(name, "/")
	step, err := strconv.Atoi(number)
	return step, ok && err == nil && path.Base(l.Step(step)) == number
}
