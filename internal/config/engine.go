package config

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Kinds of engines of others.
const (
	EngineVLLM     = "vllm"
	EngineSGLang   = "sglang"
	EngineLlamaCpp = "llamacpp"
)

// RolloutEngine is a server that samples in place of Temper's own engine. Nothing
// forces its draws, so bits of samples are not promised; see docs/external-engines.md.
type RolloutEngine struct {
	// Kind is the server. Its processed log-probabilities are demanded, and it must
	// compute the model in float32 unless tolerance says otherwise.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" enum:"vllm|sglang|llamacpp" empty:"Temper's own engine"`
	// URLs are the servers of vllm and sglang, all with the model of the run.
	URLs []string `yaml:"urls,omitempty" json:"urls,omitempty"`
	// Command starts a server of llamacpp, which cannot replace its weights: rollout
	// workers start one for each policy. {model} is the GGUF file, {host} and {port} are
	// where it listens.
	Command []string `yaml:"command,omitempty" json:"command,omitempty"`
	// Folder is where rollout workers write policies. The servers see it under the same
	// path.
	Folder string `yaml:"folder,omitempty" json:"folder,omitempty" path:"yes"`
	// KeyEnv is the environment variable of the rollout workers that holds the key of the
	// servers.
	KeyEnv string `yaml:"key_env,omitempty" json:"key_env,omitempty"`
	// KeyFile is a file on the rollout workers that holds the key of the servers.
	KeyFile string `yaml:"key_file,omitempty" json:"key_file,omitempty" path:"yes"`
	// Tolerance is the largest difference between a log-probability of the server and
	// Temper's own with which a policy counts as loaded. 0 is 1e-4, which suits float32.
	Tolerance float64 `yaml:"tolerance,omitempty" json:"tolerance,omitempty" range:"0|1e-07..1" unit:"nats"`
	// Patience is how long rollouts wait for a server that is away. 0 is five minutes.
	Patience time.Duration `yaml:"patience,omitempty" json:"patience,omitempty" range:"0|1s..24h"`
}

// External reports whether a server of others samples.
func (e RolloutEngine) External() bool { return e.Kind != "" }

// NotPromised reports which bits a run does not promise, "" if it promises all.
func (r Run) NotPromised() string {
	if !r.Rollout.Engine.External() {
		return ""
	}
	return r.Rollout.Engine.Kind + " samples and nothing forces its draws: what is sampled again may differ; training replays stored batches bit for bit"
}

// checkEngine checks the server of others, and that training corrects for it.
func checkEngine(c *checker, r Run) {
	const path = "rollout.engine"
	e := r.Rollout.Engine
	stated := e.Folder != "" || len(e.URLs) > 0 || len(e.Command) > 0 || e.KeyEnv != "" || e.KeyFile != "" || e.Tolerance != 0 || e.Patience != 0
	if !e.External() {
		if stated {
			c.add(path+".kind", "is missing beside other keys, want one of %s", strings.Join([]string{EngineVLLM, EngineSGLang, EngineLlamaCpp}, ", "))
		}
		return
	}
	if e.Folder == "" {
		c.add(path+".folder", "is missing: policies reach the server through a folder")
	}
	if e.KeyEnv != "" && e.KeyFile != "" {
		c.add(path+".key_file", "is set beside %s.key_env: want one", path)
	}
	if e.Kind == EngineLlamaCpp {
		checkEngineCommand(c, path, e)
	} else {
		checkEngineURLs(c, path, e)
	}
	if loss := r.RL.Loss; loss.Correction.Level == "" && loss.OldLogprobs != OldRollout {
		c.add("rl.loss.correction.level", "is empty, but %s samples: its rounding is another, so training must weigh by importance; "+
			"want %s or %s with a cap, or rl.loss.old_logprobs %s", e.Kind, CorrectToken, CorrectSequence, OldRollout)
	}
}

func checkEngineCommand(c *checker, path string, e RolloutEngine) {
	if len(e.URLs) > 0 {
		c.add(path+".urls", "is set, but %s cannot replace its weights: want command, which starts a server for each policy", e.Kind)
	}
	for _, word := range []string{"{model}", "{port}"} {
		if !slices.ContainsFunc(e.Command, func(s string) bool { return strings.Contains(s, word) }) {
			c.add(path+".command", "has no %s, want for example [llama-server, -m, \"{model}\", --port, \"{port}\"]", word)
		}
	}
}

func checkEngineURLs(c *checker, path string, e RolloutEngine) {
	if len(e.Command) > 0 {
		c.add(path+".command", "is set, but Temper starts no %s: want urls", e.Kind)
	}
	if len(e.URLs) == 0 {
		c.add(path+".urls", "is empty, want at least one http://HOST:PORT")
	}
	for i, text := range e.URLs {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			c.add(path+".urls", "holds %q, want http://HOST:PORT without a name or password", text)
		}
		if slices.Contains(e.URLs[:i], text) {
			c.add(path+".urls", "holds %s twice", text)
		}
	}
}
