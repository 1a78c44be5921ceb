package config

// Tracker selects further outputs of a run besides its series, for people and for other
// programs. It changes nothing that a step computes, and is no part of what runs are
// compared by.
type Tracker struct {
	// TensorBoard writes an event file of TensorBoard with the series of each step, below
	// tensorboard/ in the folder of the run. A TensorBoard that watches a store of files
	// shows new steps as they come.
	TensorBoard bool `yaml:"tensorboard,omitempty" json:"tensorboard,omitempty"`
	// ToolOutputs keeps the whole output of each call of a tool, beside the text that the
	// policy saw, which max_tool_response_chars cuts. It goes with the trajectories of its step.
	ToolOutputs bool `yaml:"tool_outputs,omitempty" json:"tool_outputs,omitempty"`
	// TokenStats is of how many groups of a step the trainer's log-probability and the entropy of
	// each kept token are stored, which the dashboard shows beside the engine's. The groups are the
	// first by problem. Each costs a forward pass over its kept trajectories before the update.
	TokenStats int `yaml:"token_stats,omitempty" json:"token_stats,omitempty" range:"0.." unit:"groups"`
}
