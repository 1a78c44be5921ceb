//go:build integration

package main_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"temper/internal/rl"
)

// checkServe serves a policy of the run, with a key. A client of OpenAI gets the tokens and
// log-probabilities that the run sampled, to the last bit, from the prompts and seeds of
// the stored trajectories.
func checkServe(t *testing.T, p *place) {
	t.Helper()
	serve := p.launchWith([]string{"TEMPER_SERVE_KEY=a key for the test"}, "temper", "serve", "--home", p.home, "--model", "whole", "--policy-version", "2", "--name", "policy-2", "--listen", "127.0.0.1:0")
	url := serve.await(`"url":"([^"]+)"`, time.Minute)[1]
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("a key for the test"))
	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "policy-2" {
		t.Fatalf("models %+v, %v", models, err)
	}
	stranger := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	if _, err := stranger.Models.List(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without the key: %v", err)
	}
	asked := 0
	for _, tr := range storedTrajectories(t, filepath.Join(p.home, "store", "runs", "whole", "steps", "000003")) {
		if tr.PolicyVersion != 2 {
			t.Fatalf("step 3 was sampled by policy %d", tr.PolicyVersion)
		}
		sayAgain(t, &client, tr)
		asked++
	}
	if asked < 4 {
		t.Errorf("%d trajectories were compared", asked)
	}
	serve.signal(syscall.SIGTERM)
	serve.end(0, 30*time.Second)
}

// sayAgain asks for the first turn of a trajectory.
func sayAgain(t *testing.T, client *openai.Client, tr rl.Trajectory) {
	t.Helper()
	turn := tr.Turns[0]
	var prompt []int64
	for _, id := range tr.Tokens[:turn.Start] {
		prompt = append(prompt, int64(id))
	}
	got, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "policy-2", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: prompt}, Seed: openai.Int(int64(tr.Seed)),
		MaxTokens: openai.Int(int64(turn.End - turn.Start)), Temperature: openai.Float(1), Logprobs: openai.Int(1),
	}, option.WithJSONSet("return_token_ids", true))
	if err != nil {
		t.Fatal(err)
	}
	var choice struct {
		TokenIDs []int32 `json:"token_ids"`
		Logprobs struct {
			TokenLogprobs []float32 `json:"token_logprobs"`
		} `json:"logprobs"`
	}
	if err := json.Unmarshal([]byte(got.Choices[0].RawJSON()), &choice); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(choice.TokenIDs, tr.Tokens[turn.Start:turn.End]) || !slices.Equal(choice.Logprobs.TokenLogprobs, tr.RolloutLogprobs[turn.Start:turn.End]) {
		t.Errorf("%s/%d: the server says %v with %v, the run had %v with %v", tr.ProblemID, tr.Rollout,
			choice.TokenIDs, choice.Logprobs.TokenLogprobs, tr.Tokens[turn.Start:turn.End], tr.RolloutLogprobs[turn.Start:turn.End])
	}
}

// storedTrajectories reads the trajectories of a step.
func storedTrajectories(t *testing.T, step string) []rl.Trajectory {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(step, "trajectories", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []rl.Trajectory
	for _, file := range files {
		for line := range strings.Lines(string(readAll(t, file))) {
			var tr rl.Trajectory
			if err := json.Unmarshal([]byte(line), &tr); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, tr)
		}
	}
	return all
}
