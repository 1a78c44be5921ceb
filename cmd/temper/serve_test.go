package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/cli"
	"temper/trainer/weights/hf"
)

// servableModel makes a small model of a seed that can be served.
func servableModel(t *testing.T, seed string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "m")
	config := filepath.Join(t.TempDir(), "config.json")
	dimensions := `{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512, "hidden_size": 32,
"intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "eos_token_id": 256,
"max_position_embeddings": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-06, "tie_word_embeddings": true}`
	if err := os.WriteFile(config, []byte(dimensions), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "model", "init", dir, "--config", config, "--seed", seed)
	for name, from := range map[string]string{
		"tokenizer.json":      "../../internal/chat/tokenizer/testdata/tokenizer.json",
		"chat_template.jinja": "../../internal/chat/testdata/templates/chatml-tools.jinja",
	} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serving runs temper serve until end.
func serving(t *testing.T, listen, dir string) (url string, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	cmd := serveCommand(place())
	r, w := io.Pipe()
	cmd.SetArgs([]string{"--model", dir, "--listen", listen, "--slots", "2"})
	cmd.SetOut(w)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.CloseWithError(io.EOF)
		ended <- err
	}()
	var ready struct{ URL string }
	if err := json.NewDecoder(r).Decode(&ready); err != nil {
		t.Fatalf("no ready line: %v; %v", err, <-ended)
	}
	return ready.URL, func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end of the server: %v", err)
		}
	}
}

// digestTold is what the list of a server says of the weights.
func digestTold(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url + "/v1/models") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var list struct {
		Data []struct{ Weights string }
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list.Data) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list.Data[0].Weights
}

// TestServeTellsItsWeights: the list has their digest, by which an evaluation tells the model
// from another one that is served under its name at its address.
func TestServeTellsItsWeights(t *testing.T) {
	dirs := map[string]string{"1": servableModel(t, "1"), "2": servableModel(t, "2")}
	set := "s=" + problemFile(t, "4")
	t.Chdir(t.TempDir())
	listen, first := "127.0.0.1:0", ""
	for i, seed := range []string{"1", "1", "2"} {
		model, err := hf.Load(dirs[seed])
		if err != nil {
			t.Fatal(err)
		}
		digest, err := hf.Digest(t.Context(), model)
		if err = errors.Join(err, model.Close()); err != nil {
			t.Fatal(err)
		}
		url, end := serving(t, listen, dirs[seed])
		if got := digestTold(t, url); got != digest {
			t.Errorf("model %s: the list says %q of the weights, want %s", seed, got, digest)
		}
		out, err := evaluation(t, "--url", url, "--set", set, "--max-tokens", "4")
		end()
		listen = strings.TrimPrefix(url, "http://")
		if i == 0 {
			first = digest
		}
		switch {
		case digest == first:
			if err != nil {
				t.Errorf("time %d of model %s: %s: %v", i, seed, out, err)
			}
		case cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), `weights "`+first+`", now "`+digest+`"`):
			t.Errorf("the other model: %s: %v", out, err)
		}
	}
}
