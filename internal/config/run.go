// Package config owns what a run is (Run: the science, stored and hashed with
// the run) and where its parts are (Process: addresses, folders, secrets). It
// decodes strictly, fills defaults in one place and reports all problems at once.
// docs/configuration.md and the JSON Schema are generated from its declarations.
//
// Invariant: a Run that Validate accepts can be executed by every package
// without further range checks.
package config

//go:generate go run ./docgen

import (
	"time"

	"temper/internal/grpo"
)

// Run is the science of one run: everything that its result depends on.
//
// The keys of the YAML are the snake_case of the fields. keys.go explains the tags
// of the fields. The first paragraph of each comment becomes documentation.
type Run struct {
	// Name is the first part of generated run ids.
	Name string `yaml:"name" json:"name" form:"name"`
	// Seed is the root of every random draw of the run.
	Seed uint64 `yaml:"seed" json:"seed" amend:"no: every draw of the run so far came from it"`

	// Model is what the run starts from and how training computes it.
	Model Model `yaml:"model" json:"model" amend:"no: the weights have this shape"`
	// Tokenizer is how the vocabulary is made.
	Tokenizer Tokenizer `yaml:"tokenizer" json:"tokenizer" amend:"no: the weights know these tokens"`
	// Data is what preparation makes of the sets of the run.
	Data Data `yaml:"data" json:"data" amend:"no: the data of the run is made"`
	// SFT is the supervised stage before the RL stages.
	SFT SFT `yaml:"sft" json:"sft" amend:"no: the supervised updates are made"`
	// Trainer is how updates and samples are computed.
	Trainer Trainer `yaml:"trainer,omitempty" json:"trainer,omitzero" amend:"no: what the run has computed so far came from these kernels"`
	// RL is the update rule of all RL stages.
	RL RL `yaml:"rl" json:"rl"`
	// Rollout is how trajectories are sampled.
	Rollout Rollout `yaml:"rollout" json:"rollout" amend:"some: the prompts of the run have this form"`
	// Reward is who gives the rewards.
	Reward Reward `yaml:"reward,omitempty" json:"reward,omitzero" amend:"some: the rewards of the run so far came from it"`
	// Stages are the RL stages. They run in this order, after SFT.
	Stages []Stage `yaml:"stages" json:"stages" required:"yes" amend:"some: the problems of the stages are made and dealt out"`
	// Eval is how held-out problems are measured.
	Eval Eval `yaml:"eval" json:"eval" amend:"yes"`
	// Checkpoint is what is saved and what is deleted.
	Checkpoint Checkpoint `yaml:"checkpoint" json:"checkpoint" amend:"yes"`
	// Watch is what counts as trouble, and whether the run stops for it.
	Watch Watch `yaml:"watch" json:"watch" amend:"yes"`
	// Tracker is what the run stores besides, for people and for other programs.
	Tracker Tracker `yaml:"tracker,omitempty" json:"tracker,omitzero" amend:"yes"`
	// Fork is the checkpoint of another run that this run continues. temper run fork
	// writes it; a configuration that is submitted leaves it out.
	Fork Fork `yaml:"fork,omitempty" json:"fork,omitzero"`
	// Amendments are the changes that people made during the run, oldest first. temper
	// run amend writes them; a configuration that is submitted leaves them out.
	Amendments []Amendment `yaml:"amendments,omitempty" json:"amendments,omitempty"`
}

// Fork is the checkpoint of another run that a run continues. Steps count on.
type Fork struct {
	// RunID is the id of the other run.
	RunID string `yaml:"run_id,omitempty" json:"run_id,omitempty"`
	// Step is the last step that both runs share; 0 is the end of SFT.
	Step int `yaml:"step,omitempty" json:"step,omitempty" unit:"steps"`
}

// Model is where a run starts. It starts from random weights of a decoder with the
// dimensions below, or from a checkpoint (path) or a policy of another run (run). A checkpoint brings its dimensions along: beside path or
// run, only max_context, compute and remat may be stated.
type Model struct {
	// Path is a model directory in Hugging Face layout with its tokenizer.json, of the
	// family qwen3, qwen2, llama, mistral or smollm3; empty means random weights. A relative path counts from the folder of the
	// configuration file.
	Path string `yaml:"path,omitempty" json:"path,omitempty" path:"yes" empty:"random weights"`
	// Run names a published policy of another run in the same store, as RUN@POLICY
	// (demo@120). The run starts from its weights and its tokenizer. It excludes path.
	Run string `yaml:"run,omitempty" json:"run,omitempty"`

	// HiddenSize is the width of the residual stream.
	HiddenSize int `yaml:"hidden_size,omitempty" json:"hidden_size,omitempty" range:"8..16384"`
	// NumLayers is the number of transformer blocks.
	NumLayers int `yaml:"num_layers,omitempty" json:"num_layers,omitempty" range:"1..256"`
	// NumHeads is the number of query heads, a multiple of num_kv_heads.
	NumHeads int `yaml:"num_heads,omitempty" json:"num_heads,omitempty" range:"1..256"`
	// NumKVHeads is the number of heads of keys and values.
	NumKVHeads int `yaml:"num_kv_heads,omitempty" json:"num_kv_heads,omitempty" range:"1..256"`
	// HeadDim is the width of one head. It must be even.
	HeadDim int `yaml:"head_dim,omitempty" json:"head_dim,omitempty" range:"4..512"`
	// IntermediateSize is the width of the feed-forward layers.
	IntermediateSize int `yaml:"intermediate_size,omitempty" json:"intermediate_size,omitempty" range:"8..65536"`
	// MaxContext is the longest sequence, prompt and response together.
	MaxContext int `yaml:"max_context" json:"max_context" range:"16..1048576" unit:"tokens"`
	// RopeTheta is the base of the rotary position embedding.
	RopeTheta float64 `yaml:"rope_theta,omitempty" json:"rope_theta,omitempty" range:"10..1e+08"`
	// RMSNormEps is added under the root of each normalization.
	RMSNormEps float64 `yaml:"rms_norm_eps,omitempty" json:"rms_norm_eps,omitempty" range:"1e-12..0.01"`
	// TieEmbeddings uses the embedding table as the output head.
	TieEmbeddings bool `yaml:"tie_embeddings" json:"tie_embeddings"`
	// InitializerRange is the standard deviation of random weights.
	InitializerRange float64 `yaml:"initializer_range,omitempty" json:"initializer_range,omitempty" range:"1e-06..1"`

	// Compute is the type in which training multiplies matrices. bfloat16 halves the
	// memory of activations on a GPU and is slower on a CPU. Weights, moments, gradients,
	// the loss and the engine are always float32.
	Compute string `yaml:"compute,omitempty" json:"compute,omitempty" enum:"float32|bfloat16" empty:"float32"`
	// Remat keeps only the inputs of layers for the backward pass and computes the
	// rest again: about half the memory of activations for about 15 % more time.
	Remat bool `yaml:"remat,omitempty" json:"remat,omitempty"`
}

// Trainer is how updates and samples are computed, where that decides bits.
type Trainer struct {
	// Kernels selects the kernels of the CPU backend, for training and sampling. native
	// selects the fastest that the CPU has; their last bits differ between kinds of CPUs.
	// portable selects the kernels for AVX2: they give the same bits on every amd64 CPU
	// with AVX2 and FMA. On a CPU with AVX-512 they take more processor time.
	Kernels string `yaml:"kernels,omitempty" json:"kernels,omitempty" enum:"native|portable" empty:"native"`
	// LoRA trains small matrices beside the weights of model.path or model.run, which stay
	// as they are.
	LoRA LoRA `yaml:"lora,omitempty" json:"lora,omitzero"`
	// Graphs bounds what XLA compiles.
	Graphs Graphs `yaml:"graphs,omitempty" json:"graphs,omitzero"`
}

// Tokenizer is how the byte-level vocabulary is made. A run that starts from
// model.path or model.run takes the tokenizer from there and ignores this section.
type Tokenizer struct {
	// NumMerges is the number of merges of byte-level BPE learned from the SFT
	// dialogues; 0 means plain bytes.
	NumMerges int `yaml:"num_merges" json:"num_merges" range:"0..4096" unit:"merges"`
}

// Source is where problems or dialogues come from: a file or a generator.
type Source struct {
	// Path is a JSONL file; see data.md for its format. Empty means that env generates
	// the data. A relative path counts from the folder of the configuration file;
	// "store:KEY" is a blob of the store.
	Path string `yaml:"path,omitempty" json:"path,omitempty" path:"yes"`
	// Env is the environment that generates the data. The lines of a file name their own.
	Env string `yaml:"env" json:"env" enum:"environments"`
	// Levels are the levels of difficulty to draw from, in equal shares: chase has 1 to
	// 5 (lookups), verbs 1 to 3 (operators), math 1 to 3 (integers, fractions, roots) and
	// reckon 1 to 3 (one call, a question in the sandbox, an output that betrays a mistake).
	// They do not matter with path.
	Levels []int `yaml:"levels" json:"levels"`
	// Num is the number of problems or dialogues to generate. It does not matter with path.
	Num int `yaml:"num" json:"num" range:"1..10000000" unit:"lines"`
}

// SFT is the supervised stage, which teaches the format and nothing else.
type SFT struct {
	// Data is the source of the dialogues.
	Data Source `yaml:"data" json:"data"`
	// BatchSize is the number of dialogues in an update.
	BatchSize int `yaml:"batch_size" json:"batch_size" range:"1..65536" unit:"dialogues"`
	// Steps is the number of updates. The data is shuffled again for each pass over it. 0
	// is only for a run with model.path or model.run, whose policy knows the format.
	Steps int `yaml:"steps" json:"steps" range:"0.." unit:"updates"`
	// Epochs is the number of passes over the data, in place of steps, which it sets when
	// the run is opened: dialogues times epochs, divided by batch_size and rounded up.
	Epochs float64 `yaml:"epochs,omitempty" json:"epochs,omitempty" range:"0|0.001..10000" unit:"passes"`
	// Optimizer makes the supervised updates.
	Optimizer Optimizer `yaml:"optimizer" json:"optimizer"`
	// Gate refuses to begin RL with a policy that RL cannot teach.
	Gate SFTGate `yaml:"gate,omitempty" json:"gate,omitzero"`
}

// RL is the update rule that all RL stages share.
type RL struct {
	// ProblemsPerStep is the number of groups sampled in a step, one for each problem.
	ProblemsPerStep int `yaml:"problems_per_step" json:"problems_per_step" range:"1..65536" unit:"problems" amend:"no: the ledger counts in it: problems of the epoch would be met twice or never"`
	// RolloutsPerProblem is the number of trajectories sampled of each problem.
	RolloutsPerProblem int `yaml:"rollouts_per_problem" json:"rollouts_per_problem" range:"2..4096" unit:"trajectories" amend:"yes"`
	// GroupSize is the number of trajectories kept of each problem, at most
	// rollouts_per_problem. rl.roc chooses them.
	GroupSize int `yaml:"group_size" json:"group_size" range:"2..4096" unit:"trajectories" amend:"yes"`
	// Window is how many steps sampling runs ahead of learning. With 0 a step is sampled by
	// the policy that the step before published. With n it is sampled by the one that was
	// published n steps before that, beside the updates in between; the first steps of a
	// stage are sampled by the policy that the stage begins with. It needs
	// rl.loss.correction or rl.loss.old_logprobs rollout, since the policy that learns is
	// another one.
	Window int `yaml:"window,omitempty" json:"window,omitempty" range:"0..8" unit:"steps" amend:"no: which policy sampled the steps under way depends on it"`
	// PartialRolloutTokens cuts a trajectory after each so many response tokens. The next
	// newer policy continues it, and the last one, the policy of the step before, continues
	// it to its end. So a long trajectory has spans of up to rl.window + 1 policy versions,
	// and its tail is the freshest. The step and the token's place in the response
	// determine the version that samples a token. 0 samples a trajectory whole. It needs
	// rl.window.
	PartialRolloutTokens int `yaml:"partial_rollout_tokens,omitempty" json:"partial_rollout_tokens,omitempty" range:"0..1048576" unit:"tokens" amend:"no: which policy samples the tokens of the steps under way depends on it"`
	// NumMinibatches is the number of optimizer updates in a step.
	NumMinibatches int `yaml:"num_minibatches" json:"num_minibatches" range:"1..1024" unit:"updates" amend:"yes"`
	// MicrobatchTokens bounds the tokens in one device pass, padding included. It holds
	// for SFT too.
	MicrobatchTokens int `yaml:"microbatch_tokens" json:"microbatch_tokens" range:"256.." unit:"tokens" amend:"yes"`
	// Pack puts several sequences into each row of a device pass and keeps them apart by
	// segments, so that there are few shapes whatever the lengths. Rows are as long as
	// the longest sequence, rounded up to a power of two. It holds for SFT too.
	Pack bool `yaml:"pack,omitempty" json:"pack,omitempty"`
	// Optimizer makes the policy updates.
	Optimizer Optimizer `yaml:"optimizer" json:"optimizer"`
	// Loss is the objective of the policy updates.
	Loss Loss `yaml:"loss" json:"loss"`
	// Advantage turns the rewards of the kept trajectories of a group into advantages: group
	// subtracts the mean and divides by the deviation (GRPO, arXiv 2402.03300);
	// leave_one_out subtracts the mean of the other trajectories (RLOO, arXiv 2402.14740);
	// no_deviation subtracts the mean (Dr. GRPO, arXiv 2503.20783);
	// reinforce_plus_plus_baseline subtracts the mean and then whitens over the loss tokens
	// of the batch (arXiv 2501.03262); pass_at_k rewards a trajectory for what it adds to
	// sets of advantage_k trajectories, of which the best counts (arXiv 2508.10751).
	Advantage string `yaml:"advantage,omitempty" json:"advantage,omitempty" enum:"estimators" empty:"group" amend:"yes"`
	// AdvantageK is the k of advantage pass_at_k, and only of it; less than group_size.
	AdvantageK int `yaml:"advantage_k,omitempty" json:"advantage_k,omitempty" range:"0..4095" unit:"trajectories" amend:"yes"`
	// Refill replaces groups that teach nothing.
	Refill Refill `yaml:"refill,omitempty" json:"refill,omitzero" amend:"no: the ledger counts the problems of the stage by it"`
	// RoC is Resample-on-Correct, which chooses the trajectories to keep.
	RoC grpo.RoC `yaml:"roc" json:"roc" amend:"yes"`
}

// Rollout is how trajectories are sampled.
type Rollout struct {
	// Engine is a server of others that samples in place of Temper's own engine.
	Engine RolloutEngine `yaml:"engine,omitempty" json:"engine,omitzero" amend:"no: the samples of a run come from one kind of engine"`
	// Temperature divides the logits before a token is drawn.
	Temperature float64 `yaml:"temperature" json:"temperature" range:"0.01..10" amend:"yes"`
	// ToolTimeout is how long one tool call may take.
	ToolTimeout time.Duration `yaml:"tool_timeout" json:"tool_timeout" range:"10ms..1h" amend:"yes"`
	// ToolMemory is how much memory one tool call may use.
	ToolMemory Bytes `yaml:"tool_memory" json:"tool_memory" range:"64MiB.." amend:"yes"`
	// MaxToolResponseChars is the length beyond which a tool response is cut in the middle.
	MaxToolResponseChars int `yaml:"max_tool_response_chars" json:"max_tool_response_chars" range:"16..1048576" unit:"characters" amend:"yes"`
	// MaxCallsPerTurn is the number of tool calls of a turn that run. The others are
	// answered with a refusal.
	MaxCallsPerTurn int `yaml:"max_calls_per_turn" json:"max_calls_per_turn" range:"1..64" unit:"calls" amend:"yes"`
	// ChatTemplate writes prompts, tool results and supervised dialogues. Empty is a
	// small ChatML that saves context; checkpoint is the template of model.path or
	// model.run; rstar2 is the prompt of rStar2-Agent and rstar2-released that of its
	// released code. Any other value is a file ending in .jinja, whose relative path
	// counts from the folder of the configuration file.
	ChatTemplate string `yaml:"chat_template,omitempty" json:"chat_template,omitempty" path:"jinja" empty:"a small ChatML"`
	// TemplateVars are variables of the template, for example {enable_thinking: false}.
	// true and false are switches, whole numbers are numbers, everything else is text.
	TemplateVars map[string]string `yaml:"template_vars,omitempty" json:"template_vars,omitempty"`
	// Tools are the tools whose schemas the prompt shows: the three with python in their
	// names run a program in the sandbox, calculator evaluates an expression exactly, and
	// none stands alone. An empty list leaves the choice to the template, and to
	// tools_in_prompt without a template. A mapping from names to options is the other
	// form: {python: {session: true}} in place of [python]. {path: my_tool.py} in the list
	// adds the functions of a file as tools.
	Tools Tools `yaml:"tools,omitempty" json:"tools,omitempty" enum:"tools"`
	// Answer is where the answer stands: tag is between <answer> and </answer>, boxed is
	// in \boxed{} between them. Of problems of the environment math, integer takes either
	// and accepts whole numbers alone, and released takes the last box of any turn, or
	// what follows "the answer is" and the like, and compares loosely, as temper verify
	// does. Empty is boxed with rstar2 and rstar2-released, and tag otherwise.
	Answer string `yaml:"answer,omitempty" json:"answer,omitempty" enum:"tag|boxed|integer|released" empty:"by chat_template"`
	// SystemPrompt is the system message. With a template, an empty text leaves it to
	// the template. It is empty in the small recipes to save context.
	SystemPrompt string `yaml:"system_prompt" json:"system_prompt"`
	// ToolsInPrompt shows the schema of the tool in the small ChatML. It is off in the
	// small recipes to save context.
	ToolsInPrompt bool `yaml:"tools_in_prompt" json:"tools_in_prompt"`
}

// Stage is a stretch of RL with fixed data and limits.
type Stage struct {
	// Name is the name of the stage, unique in the run.
	Name string `yaml:"name" json:"name" form:"name" required:"yes"`
	// Data is the source of the problems.
	Data Source `yaml:"data" json:"data"`
	// MaxResponseTokens bounds the tokens of a trajectory after its prompt, those of tool
	// results included. It must be less than model.max_context.
	MaxResponseTokens int `yaml:"max_response_tokens" json:"max_response_tokens" range:"8.." unit:"tokens" amend:"yes"`
	// MaxTurns is the number of generations in a trajectory.
	MaxTurns int `yaml:"max_turns" json:"max_turns" range:"1..1000" unit:"turns" amend:"yes"`
	// Until is the end of the stage.
	Until Until `yaml:"until" json:"until"`
	// Filter removes problems before the stage starts.
	Filter Filter `yaml:"filter" json:"filter"`
	// Bands passes over problems that have become too easy or too hard.
	Bands Bands `yaml:"bands,omitempty" json:"bands,omitzero"`
	// Temperature stands in place of rollout.temperature in this stage; 0 leaves that.
	Temperature float64 `yaml:"temperature,omitempty" json:"temperature,omitempty" range:"0|0.01..10" amend:"yes"`
	// LR stands in place of rl.optimizer.lr in this stage; 0 leaves that.
	LR float64 `yaml:"lr,omitempty" json:"lr,omitempty" range:"0|1e-12..1" amend:"yes"`
	// RolloutsPerProblem stands in place of rl.rollouts_per_problem in this stage; 0 leaves
	// that.
	RolloutsPerProblem int `yaml:"rollouts_per_problem,omitempty" json:"rollouts_per_problem,omitempty" range:"0|2..4096" unit:"trajectories" amend:"yes"`
	// GroupSize stands in place of rl.group_size in this stage; 0 leaves that.
	GroupSize int `yaml:"group_size,omitempty" json:"group_size,omitempty" range:"0|2..4096" unit:"trajectories" amend:"yes"`
	// ResetOptimizer sets both reset_moments and reset_schedule. A stage that resets
	// nothing continues with the optimizer of the stage before; the first stage always
	// starts with a fresh one.
	ResetOptimizer bool `yaml:"reset_optimizer" json:"reset_optimizer"`
	// ResetMoments sets the moments of the optimizer to zero at the start of the stage,
	// and the age that corrects their bias.
	ResetMoments bool `yaml:"reset_moments,omitempty" json:"reset_moments,omitempty"`
	// ResetSchedule starts warm-up and schedule again at the start of the stage. They
	// then last to the next stage that does so.
	ResetSchedule bool `yaml:"reset_schedule,omitempty" json:"reset_schedule,omitempty"`
}

// Eval measures held-out problems of each stage: one greedy rollout each for
// accuracy, and rollouts at the training temperature for the tool-error rate.
type Eval struct {
	// NumProblems is the number of held-out problems of each stage. With a file of
	// problems these are its last lines, at most half of it.
	NumProblems int `yaml:"num_problems" json:"num_problems" range:"1..100000" unit:"problems" amend:"no: the held-out problems are set aside"`
	// Rollouts is the number of trajectories sampled of each held-out problem.
	Rollouts int `yaml:"rollouts" json:"rollouts" range:"1..1024" unit:"trajectories"`
	// MaxContext is the longest sequence in evaluations of sets where that is more than
	// model.max_context, which bounds what is trained on. Engines make room for it. 0 means
	// model.max_context.
	MaxContext int `yaml:"max_context,omitempty" json:"max_context,omitempty" range:"0|16..1048576" unit:"tokens" amend:"no: the engines of the run have this size"`
	// Sets are further problems, each with its own settings.
	Sets []EvalSet `yaml:"sets,omitempty" json:"sets,omitempty" amend:"no: the problems are set aside, and the run has planned its evaluations"`
}

// Checkpoint is how often the full training state is saved, and what is deleted
// when a checkpoint has been stored.
type Checkpoint struct {
	// EverySteps is the number of steps from one checkpoint to the next.
	EverySteps int `yaml:"every_steps" json:"every_steps" range:"1.." unit:"steps"`
	// Keep is the number of newest checkpoints that are kept. The last one of each
	// stage is always kept.
	Keep int `yaml:"keep" json:"keep" range:"1.." unit:"checkpoints"`
	// EveryNth also keeps the checkpoints of steps that it divides; 0 keeps none for that.
	EveryNth int `yaml:"every_nth" json:"every_nth" range:"0.." unit:"steps"`
	// Best is the number of checkpoints that are kept because their policies earned
	// most: the mean reward of the first step that sampled with it, which without
	// rl.window is the one after the checkpoint.
	// --best chooses by the same number. 0 keeps none for that.
	Best int `yaml:"best" json:"best" range:"0.." unit:"checkpoints"`
	// KeepPolicies is the number of newest published policies that are kept; 0 keeps
	// all. It is not 1, because a step samples from one policy while it publishes the
	// next, and with rl.window at least 2 more than that. The others are deleted, except policy 0, the last of each stage, and those
	// that were evaluated, that a schedule starts from, or whose step has a checkpoint
	// that stays or a pin.
	KeepPolicies int `yaml:"keep_policies" json:"keep_policies" range:"0|2.." unit:"policies"`
	// KeepTrajectories is the number of newest steps whose trajectories are kept; 0 keeps
	// all. Batches always stay, and a replay reads nothing else; forks and repeated
	// stages sample again.
	KeepTrajectories int `yaml:"keep_trajectories" json:"keep_trajectories" range:"0.." unit:"steps"`
	// ShardPolicies is the size of the weights from which a published policy is stored as
	// shards by content, in place of one file: what did not change, or a checkpoint has
	// stored, is not stored again, shards are read side by side, and engines on the
	// trainer's host take them from its memory. 0 is never.
	ShardPolicies Bytes `yaml:"shard_policies" json:"shard_policies" range:"0.."`
}
