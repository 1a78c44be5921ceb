package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"temper/internal/config"
)

// TestWatchKeys: each rule has a default, can be switched off and amended, and is
// checked.
func TestWatchKeys(t *testing.T) {
	const stage = "stages: [{name: a}]\n"
	run, err := config.Load("f", []byte(stage), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Watch{
		Steps: 3, RewardDrop: 0.5, RewardSteps: 5, DroppedSteps: 3, ToolErrors: 0.9, ClipRatio: 0.5,
		EntropyMin: 0.001, EntropyMax: 3, SkippedSteps: 3, InfraErrors: 0.01, StalledSteps: 5,
	}
	if run.Watch != want {
		t.Errorf("defaults are %+v, want %+v", run.Watch, want)
	}
	off := "watch: {reward_drop: 0, dropped_steps: 0, tool_errors: 0, clip_ratio: 0, entropy_min: 0, entropy_max: 0, skipped_steps: 0, infra_errors: 0, stalled_steps: 0}\n"
	if _, err := config.Load("f", []byte(stage+off), nil); err != nil {
		t.Errorf("all rules off: %v", err)
	}
	run.Amendments = []config.Amendment{{FromStep: 1, Set: map[string]string{"watch.pause": "true", "watch.reward_drop": "0.2"}}}
	if err := run.Validate(); err != nil || !run.At(1).Watch.Pause || run.At(1).Watch.RewardDrop != 0.2 {
		t.Errorf("amended to %+v (%v)", run.At(1).Watch, err)
	}
	_, err = config.Load("f", []byte(stage+"watch: {reward_drop: 2, steps: 0, stalled_steps: 0.5, entropy_min: 4, webhook: https://x}\n"), nil)
	for _, want := range []string{
		"watch.reward_drop: is 2, want 0 to 1", "watch.steps: is 0, want 1 to 1000", "watch.stalled_steps: is 0.5, want 0, or 1 to 1000",
		"watch.entropy_min: is 4, want less than watch.entropy_max (3)", "watch.webhook: unknown key",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error\n%v\nwant a line with %q", err, want)
		}
	}
}

// TestWebhookIsHidden wherever a Process is printed, and in the error about it.
func TestWebhookIsHidden(t *testing.T) {
	t.Setenv("TEMPER_WATCH_WEBHOOK", "https://hooks.example/hunter2")
	p := config.DefaultProcess()
	if string(p.Webhook) != "https://hooks.example/hunter2" {
		t.Fatalf("webhook is %s", string(p.Webhook))
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{
		"%v": fmt.Sprintf("%v", p), "%+v": fmt.Sprintf("%+v", p), "%#v": fmt.Sprintf("%#v", p), "%q": fmt.Sprintf("%q", p.Webhook), "JSON": string(data),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows the secret: %s", form, text)
		}
	}
	for _, bad := range []string{"ftp://hunter2", "hunter2", "https://%zz/hunter2"} {
		p.Webhook = config.Secret(bad)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "TEMPER_WATCH_WEBHOOK") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
