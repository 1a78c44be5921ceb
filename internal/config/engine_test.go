package config_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
)

// withEngine is a run that an engine of others can sample for, but for a change.
func withEngine(change func(*config.Run)) config.Run {
	r := config.Default()
	r.Rollout.Engine = config.RolloutEngine{Kind: config.EngineVLLM, URLs: []string{"http://10.0.0.1:8000"}, Folder: "/shared/policies"}
	r.RL.Loss.Correction = config.Correction{Level: config.CorrectToken, Cap: 2}
	change(&r)
	return r
}

func TestEngineOfOthers(t *testing.T) {
	for want, change := range map[string]func(*config.Run){
		"": func(*config.Run) {},
		`rollout.engine.kind: is "tgi", want one of vllm, sglang, llamacpp`: func(r *config.Run) { r.Rollout.Engine.Kind = "tgi" },
		"rollout.engine.kind: is missing beside other keys":                 func(r *config.Run) { r.Rollout.Engine.Kind = "" },
		"rollout.engine.folder: is missing":                                 func(r *config.Run) { r.Rollout.Engine.Folder = "" },
		"rollout.engine.urls: is empty":                                     func(r *config.Run) { r.Rollout.Engine.URLs = nil },
		`rollout.engine.urls: holds "10.0.0.1:8000", want http://HOST:PORT`: func(r *config.Run) { r.Rollout.Engine.URLs = []string{"10.0.0.1:8000"} },
		"rollout.engine.urls: holds http://a twice":                         func(r *config.Run) { r.Rollout.Engine.URLs = []string{"http://a", "http://a"} },
		"rollout.engine.command: is set, but Temper starts no vllm":         func(r *config.Run) { r.Rollout.Engine.Command = []string{"vllm"} },
		"rollout.engine.key_file: is set beside":                            func(r *config.Run) { r.Rollout.Engine.KeyEnv, r.Rollout.Engine.KeyFile = "KEY", "/key" },
		"rollout.engine.tolerance: is 2, want":                              func(r *config.Run) { r.Rollout.Engine.Tolerance = 2 },
		"rl.loss.correction.level: is empty, but vllm samples":              func(r *config.Run) { r.RL.Loss.Correction = config.Correction{} },
		"rollout.engine.command: has no {port}": func(r *config.Run) {
			r.Rollout.Engine = config.RolloutEngine{Kind: config.EngineLlamaCpp, Folder: "/p", Command: []string{"llama-server", "-m", "{model}"}}
		},
		"rollout.engine.urls: is set, but llamacpp cannot replace its weights": func(r *config.Run) {
			r.Rollout.Engine = config.RolloutEngine{Kind: config.EngineLlamaCpp, Folder: "/p", Command: []string{"llama-server", "{model}", "{port}"}, URLs: []string{"http://a"}}
		},
	} {
		err := withEngine(change).Validate()
		var problems config.Problems
		n := 2 // one is that there is no stage
		if want == "" {
			n = 1
		}
		if !errors.As(err, &problems) || len(problems) != n || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestNotPromised: a run says of its samples what it does not promise.
func TestNotPromised(t *testing.T) {
	if got := config.Default().NotPromised(); got != "" {
		t.Errorf("own engine: %q", got)
	}
	if got := withEngine(func(*config.Run) {}).NotPromised(); !strings.HasPrefix(got, "vllm samples") {
		t.Errorf("vllm: %q", got)
	}
}
