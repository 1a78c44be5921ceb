package config

import (
	"fmt"
	"path/filepath"
	"time"
)

// pythonEnding marks the name of a Python file.
const pythonEnding = ".py"

// Values of Reward.OnError: the treatment of a trajectory for which the reward function
// fails.
const (
	RewardStop    = "stop"
	RewardExclude = "exclude"
)

// Reward is who gives the rewards: the environment of a problem, or a Python function.
// The function runs in the sandbox, without network and files, and must return the same
// for the same arguments.
type Reward struct {
	// Path is a Python file whose function reward(problem, trajectory, key) judges each
	// trajectory in place of its environment; see architecture.md. A relative path counts
	// from the folder of the configuration file. The run keeps the text of the file.
	Path string `yaml:"path,omitempty" json:"path,omitempty" path:"yes" empty:"the environment"`
	// Timeout is the processor and wall time of a call of the function.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" range:"0|100ms..10m" amend:"yes"`
	// OnError is what a call that fails does: stop ends the run, exclude takes the
	// trajectory out of its group and counts it among the infrastructure errors. A failed
	// call is never a reward of 0.
	OnError string `yaml:"on_error,omitempty" json:"on_error,omitempty" enum:"stop|exclude" empty:"stop" amend:"yes"`
}

// Own reports whether a reward function of the user gives the rewards.
func (r Reward) Own() bool { return r.Path != "" }

// defaultRewardTimeout bounds one call of a reward function.
const defaultRewardTimeout = 10 * time.Second

// Limit is the time of a call.
func (r Reward) Limit() time.Duration {
	if r.Timeout == 0 {
		return defaultRewardTimeout
	}
	return r.Timeout
}

// problem says what is wrong with the section; empty when nothing is.
func (r Reward) problem() string {
	switch {
	case r.Path == "" && r != Reward{}:
		return "is empty, but other keys of the section are set: name a Python file or leave out the section"
	case r.Path != "" && filepath.Ext(r.Path) != pythonEnding:
		return fmt.Sprintf("is %q, want a file ending in %s", r.Path, pythonEnding)
	}
	return ""
}
