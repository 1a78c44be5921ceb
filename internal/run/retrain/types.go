package retrain

import (
	"encoding/json"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rules"
	"temper/internal/run"
)

// Input is the input of the workflow Retrain, and so the one argument of a
// Temporal Schedule, as a person writes it:
//
//	{"id": "nightly", "config": "/etc/temper/recipe.yaml", "data": ["/data/new/*.jsonl"], "gate": ["accuracy>=+0.01"]}
type Input struct {
	// ID names the schedule: its folder in the store and the runs that it makes.
	ID string `json:"id"`
	// Config is the base recipe, as in run.Input. A path is read again by each
	// re-training, and must be absolute.
	Config json.RawMessage `json:"config"`
	// Set overrides single keys of the recipe.
	Set run.Settings `json:"set,omitempty"`
	// Data names the problems: files, folders (their *.jsonl) and globs by absolute
	// path, readable by the control worker, or store:PREFIX.
	Data []string `json:"data"`
	// Stages of the recipe that take the data, by name; empty means all.
	Stages []string `json:"stages,omitempty"`
	// Gate is the rules that a policy has to pass, see rules.GateRule; empty means
	// rules.DefaultRule.
	Gate []string `json:"gate,omitempty"`

	wrong config.Problems // of the JSON that it was decoded from
}

// UnmarshalJSON decodes what a person wrote and remembers what is wrong with it; see
// CheckKeys.
func (in *Input) UnmarshalJSON(data []byte) error {
	in.wrong = config.DecodeInput(data, in)
	return nil
}

// CheckKeys reports unknown keys and values of another form in the JSON that the
// input was decoded from.
func (in Input) CheckKeys() error { return in.wrong.Err() }

// PlanInput asks what a re-training has to do.
type PlanInput struct {
	Retrain Input `json:"retrain"`
	// RunID of the run that it will make.
	RunID string    `json:"run_id"`
	Now   time.Time `json:"now"`
}

// Plan is what a re-training sets out to do.
type Plan struct {
	RunID string `json:"run_id"`
	// Nothing says why there is nothing to do; the rest is then empty.
	Nothing string `json:"nothing,omitempty"`
	// Data is the snapshot of all problems, of NumFiles files.
	Data        blob.Ref `json:"data"`
	NumProblems int      `json:"num_problems"`
	NumFiles    int      `json:"num_files"`
	// Hash identifies data and recipe together.
	Hash string `json:"hash"`
	// From is the last good policy, as RUN@POLICY; empty for the first re-training,
	// which starts as the recipe says. Good is the pointer that named it.
	From string   `json:"from,omitempty"`
	Good blob.Ref `json:"good"`
	// Config is the frozen configuration of the run, YAML.
	Config string `json:"config"`
}

// GoodPolicy is the last good policy of a schedule.
type GoodPolicy struct {
	RunID  string     `json:"run_id"`
	Policy run.Policy `json:"policy"`
	// From is the policy that its run started from; empty for the first one.
	From string `json:"from,omitempty"`
	// Data is the snapshot that it was trained on.
	Data blob.Ref `json:"data"`
	// Scores on the run's held-out problems.
	Scores    []rules.GateScore `json:"scores"`
	Published time.Time         `json:"published"`
}

// Outcomes of a re-training.
const (
	Published = "published" // the policy passed the gate and is the last good one
	Refused   = "refused"   // it did not pass; the last good policy stays
	Nothing   = "nothing"   // there was nothing to train on
	Stopped   = "stopped"   // a user stopped the run; its policy was not judged
	Overtaken = "overtaken" // it passed, but another one was published meanwhile
)

// JudgeInput asks for the gate of a re-training whose run has ended.
type JudgeInput struct {
	ID   string   `json:"id"`
	Gate []string `json:"gate,omitempty"`
	Plan Plan     `json:"plan"` // without Config
	// Policy is the last policy of the run.
	Policy run.Policy `json:"policy"`
	// Stopped is set when the run was asked to stop: it is recorded, not judged.
	Stopped bool      `json:"stopped,omitempty"`
	Now     time.Time `json:"now"`
}

// Outcome is how a re-training ended.
type Outcome struct {
	RunID   string `json:"run_id"`
	Outcome string `json:"outcome"` // one of the above
	Reason  string `json:"reason"`
	// Policy of the run, From and Verdicts are empty where nothing was judged.
	Policy   run.Policy          `json:"policy"`
	From     string              `json:"from,omitempty"`
	Verdicts []rules.GateVerdict `json:"verdicts,omitempty"`
	// Candidate and Good are what the two policies scored on the same problems.
	Candidate []rules.GateScore `json:"candidate,omitempty"`
	Good      []rules.GateScore `json:"good,omitempty"`
	Ended     time.Time         `json:"ended"`
}

// Event records something worth reading in the schedule's event log.
type Event struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Kind is one word: nothing, start, publish, refuse, stop, cancel, fail.
	Kind string `json:"kind"`
	Text string `json:"text"`
}
