// Package chain owns the chain of manifests that proves what a run has stored: the writer,
// the reader, and the check of the store against it. It knows no algorithm and makes
// nothing again.
//
// Invariant: each object that a run stores for good has its SHA-256 in a manifest, or
// in an object that a manifest holds. A manifest is written once and names the one
// before it.
package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"temper/internal/blob"
	"temper/internal/rl"
)

// Format is the version of the manifests that this program writes. It reads no newer
// ones.
const Format = 1

// Kind says which part of a run a manifest is of.
type Kind string

// The kinds of manifests, in the order of a chain.
const (
	Opening Kind = "opening" // what the run begins with
	Step    Kind = "step"
	Closing Kind = "closing" // what came after the last step
)

// Manifest is one link of the chain of a run.
type Manifest struct {
	Format int `json:"format"`
	// Previous is the manifest before; zero for the opening. Its SHA-256 is the seal of
	// that manifest.
	Previous blob.Ref `json:"previous,omitzero"`
	// Link is the SHA-256 of the link before and of Facts; see LinkOf. Two runs of one
	// id, configuration and seed have equal links.
	Link string `json:"link"`
	// Facts are a function of configuration and seed. Decode reads them.
	Facts json.RawMessage `json:"facts"`
	// Holds are the objects that the run has stored since the manifest before. An object
	// that such an object names by a Ref is held, too.
	Holds []blob.Ref `json:"holds"`
	// State are objects that change, as they were at the end of the run.
	State []blob.Ref `json:"state,omitempty"`
	// Fork is the manifest of the parent's step from which a fork starts; zero if the
	// parent has none.
	Fork blob.Ref `json:"parent_manifest,omitzero"`
	// MadeBy are the programs and machines that made what the manifest holds, as far as
	// they are known.
	MadeBy []Maker `json:"made_by,omitempty"`
	// Digest is the sum of these bytes with zeros in its place; see Digest.
	Digest string `json:"digest"`
}

// Span is a stretch of a step's trajectories: up to so many response tokens, or to the end
// for 0, that one policy sampled.
type Span struct {
	Until     int    `json:"until,omitempty"`
	SampledBy string `json:"sampled_by"`
}

// Facts are what is known of a part of a run. Fields that the kind does not have are
// empty. All sums are SHA-256 in hex.
type Facts struct {
	Run  string `json:"run"`
	Kind Kind   `json:"kind"`
	// Step is the number of the step; for the closing, the last step; for the opening, the
	// step before the first one of the chain.
	Step  int `json:"step"`
	Stage int `json:"stage,omitempty"`
	// Config is the sum of the frozen configuration and of the amendments up to the step.
	Config string `json:"config"`

	// Data are the tokenizer, the chat template, dialogues and problems, of the opening.
	Data []blob.Ref `json:"data,omitempty"`
	// Fork is the run and the step from which a fork starts; only in the opening.
	Fork string `json:"fork,omitempty"`

	// The step learned from PolicyIn, and PolicyOut came of it: the sums of their
	// manifests. PolicyIn has sampled the step, too, unless SampledBy names another.
	PolicyIn  string `json:"policy_in,omitempty"`
	SampledBy string `json:"sampled_by,omitempty"`
	// Spans are the policies that sampled the trajectories one after another, where several
	// did; SampledBy is the first of them.
	Spans     []Span `json:"spans,omitempty"`
	PolicyOut string `json:"policy_out,omitempty"`
	// Rollouts is the sum of the numbers of all that was sampled. They name the Batch,
	// which names trajectories and samples.
	Rollouts string   `json:"rollouts,omitempty"`
	Batch    blob.Ref `json:"batch,omitzero"`
	// Metrics are the metrics of the update.
	Metrics *rl.TrainMetrics `json:"metrics,omitempty"`

	// Evaluations are the trajectories of all evaluations, of the closing.
	Evaluations []blob.Ref `json:"evaluations,omitempty"`
}

// Decode reads the facts of a manifest.
func (m *Manifest) Decode() (f Facts, err error) {
	if err = json.Unmarshal(m.Facts, &f); err != nil {
		err = fmt.Errorf("facts: %w: %w", err, blob.ErrCorrupt)
	}
	return f, err
}

// LinkOf is the link of facts after another link, which is empty for the opening: the
// SHA-256 of that link in hex, a line break, and the facts as JSON without white space.
func LinkOf(before string, facts json.RawMessage) (string, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, facts); err != nil {
		return "", fmt.Errorf("facts: %w: %w", err, blob.ErrCorrupt)
	}
	sum := sha256.New()
	fmt.Fprintln(sum, before)
	sum.Write(compact.Bytes())
	return hex.EncodeToString(sum.Sum(nil)), nil
}
