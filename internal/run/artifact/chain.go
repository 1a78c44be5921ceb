package artifact

import (
	"fmt"
	"strings"
)

// ChainKeys makes the keys of the chain of manifests.
type ChainKeys struct{ l Layout }

// Opening is the first manifest: the objects with which the run begins. The manifests of
// steps follow it, see StepKeys.Manifest.
func (c ChainKeys) Opening() string { return runKey(c.l, "opening.json") }

// Closing is the last manifest.
func (c ChainKeys) Closing() string { return runKey(c.l, "closing.json") }

// RetiredDir is the folder of the notes on deleted objects.
func (c ChainKeys) RetiredDir() string { return runKey(c.l, "retired") }

// Retired is one of those notes, by the cursor of the save and the sum of the note.
func (c ChainKeys) Retired(cursor int, sha256 string) string {
	return runKey(c.l, "retired", fmt.Sprintf("%06d-%.12s.json", cursor, sha256))
}

// Contains reports whether key is a manifest of the chain.
func (c ChainKeys) Contains(key string) bool {
	step, ok := StepOf(c.l, key)
	return key == c.Opening() || key == c.Closing() || ok && key == c.l.Step(step).Manifest()
}

// SideFolders returns the folders that a run keeps beside its steps, policies and
// checkpoints.
func (c ChainKeys) SideFolders() []string {
	return []string{runKey(c.l, "config"), runKey(c.l, "data"), c.l.SFT().Dir(), runKey(c.l, "diverged"), c.l.Evals(), c.l.Events().Dir(), c.RetiredDir()}
}

// Aside reports whether key is outside the bits of a run: times of trajectories, whole
// outputs, figures of tokens, blocks of records, notes of people, and event files for other
// programs.
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

// Omits reports whether the chain does not hold key: keys that are Aside, and objects that are
// replaced or deleted in time: announcements and pins of checkpoints, shards of a batch,
// trajectories of incomplete groups, groups that continue under a newer policy, and groups
// of an evaluation under way.
func (c ChainKeys) Omits(key string) bool {
	if Aside(key) {
		return true
	}
	name := strings.TrimPrefix(key, c.l.Dir()+"/")
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
