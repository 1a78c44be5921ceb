package config

// Watch is what counts as trouble in a run. Each rule looks at the numbers of
// every step. A rule that is broken becomes an event of the run, shows in its status,
// and goes to the webhook of the process (TEMPER_WATCH_WEBHOOK) when there is one.
// No rule changes what a step computes, and 0 switches a rule off.
type Watch struct {
	// Pause holds the run before its next step when a rule is broken, until a user resumes
	// or restarts it. A step that does not end (stalled_steps) and failures of the
	// infrastructure (infra_errors) never pause a run.
	Pause bool `yaml:"pause" json:"pause"`
	// Steps is the number of steps in a row for which tool_errors, clip_ratio, entropy_min
	// or entropy_max must be broken before that counts.
	Steps int `yaml:"steps" json:"steps" range:"1..1000" unit:"steps"`
	// RewardDrop is the share of the best mean reward of the stage below which the
	// mean reward of a step is trouble.
	RewardDrop float64 `yaml:"reward_drop" json:"reward_drop" range:"0..1"`
	// RewardSteps is the number of steps in a row that reward_drop must be broken.
	RewardSteps int `yaml:"reward_steps" json:"reward_steps" range:"1..1000" unit:"steps"`
	// DroppedSteps is the number of steps in a row that end without an update because
	// every group was dropped. A step whose groups were all solved does not count: it has
	// nothing left to learn.
	DroppedSteps int `yaml:"dropped_steps" json:"dropped_steps" range:"0..1000" unit:"steps"`
	// ToolErrors is the share of failed tool calls of a step above which there is trouble.
	ToolErrors float64 `yaml:"tool_errors" json:"tool_errors" range:"0..1"`
	// ClipRatio is the share of trajectories cut at the token limit above which there is
	// trouble.
	ClipRatio float64 `yaml:"clip_ratio" json:"clip_ratio" range:"0..1"`
	// EntropyMin is the mean entropy of the policy below which it has collapsed. Steps
	// without an update do not count.
	EntropyMin float64 `yaml:"entropy_min" json:"entropy_min" range:"0..100" unit:"nats per token"`
	// EntropyMax is the mean entropy of the policy above which it has dissolved into
	// noise. Steps without an update do not count.
	EntropyMax float64 `yaml:"entropy_max" json:"entropy_max" range:"0..100" unit:"nats per token"`
	// SkippedSteps is the number of steps in a row whose updates were all skipped for the
	// norm of their gradient; see rl.optimizer.skip_grad_norm.
	SkippedSteps int `yaml:"skipped_steps" json:"skipped_steps" range:"0..1000" unit:"steps"`
	// InfraErrors is the share of trajectories of one step, lost to failures of the
	// infrastructure, above which there is trouble.
	InfraErrors float64 `yaml:"infra_errors" json:"infra_errors" range:"0..1"`
	// StalledSteps is the number of median step times, of the latest steps, after which a
	// step that has not ended is trouble.
	StalledSteps float64 `yaml:"stalled_steps" json:"stalled_steps" range:"0|1..1000" unit:"median step times"`
	// Collapse finds a policy that falls apart over many steps.
	Collapse Collapse `yaml:"collapse,omitempty" json:"collapse,omitzero"`
}
