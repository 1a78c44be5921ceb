package hf_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// generation is how a small model talks.
func generation() hf.Generation {
	return hf.Generation{Stop: []hf.Token{{ID: 2, Text: "<|im_end|>"}}, Pad: hf.Token{ID: 0, Text: "<|endoftext|>"}, Template: "{{ messages }}\n\"é\"", Temperature: 0.7}
}

// members decodes a JSON object.
func members(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return out
}

// TestDescribe: a model of ours, which came with a tokenizer alone.
func TestDescribe(t *testing.T) {
	files, err := hf.Describe(tiny(), safetensors.BF16, map[string][]byte{hf.TokenizerFile: []byte("{}")}, generation())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]any{
		hf.ConfigFile:     {"bos_token_id": nil, "eos_token_id": 2.0, "pad_token_id": 0.0, "torch_dtype": "bfloat16", "model_type": "qwen3"},
		hf.GenerationFile: {"eos_token_id": []any{2.0}, "pad_token_id": 0.0, "do_sample": true, "temperature": 0.7, "top_k": 0.0, "top_p": 1.0},
		hf.TokenizerConfigFile: {
			"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": nil,
			"model_max_length": float64(tiny().MaxPositionEmbeddings), "chat_template": generation().Template, "add_bos_token": false,
			"clean_up_tokenization_spaces": false,
		},
	}
	for name, fields := range want {
		got := members(t, files[name])
		for key, value := range fields {
			if diff := cmp.Diff(value, got[key]); diff != "" {
				t.Errorf("%s: %s: want (-) got (+):\n%s", name, key, diff)
			}
		}
	}
	if string(files[hf.TemplateFile]) != generation().Template || string(files[hf.TokenizerFile]) != "{}" || len(files) != 5 {
		t.Errorf("files %v", files)
	}
	if config, err := model.ParseConfig(files[hf.ConfigFile]); err != nil || len(config.Notes) > 0 {
		t.Errorf("config.json: notes %q, error %v", config.Notes, err)
	}
}

// TestDescribeKeepsWhatAModelCameWith, but for the end of a turn and the template
// that the training changed.
func TestDescribeKeepsWhatAModelCameWith(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		"right":            {`{"eos_token": "<|im_end|>", "x": 1.50}`, `{"eos_token": "<|im_end|>", "x": 1.50}`},
		"token as object":  {`{"eos_token": {"content": "<|im_end|>", "lstrip": false}}`, `{"eos_token": {"content": "<|im_end|>", "lstrip": false}}`},
		"other end":        {`{"eos_token": "<|endoftext|>", "x": 1.50}`, `{"eos_token": "<|im_end|>", "x": 1.50}`},
		"no end":           {`{"x": {"eos_token": 1}}`, "{\"x\": {\"eos_token\": 1},\n  \"eos_token\": \"<|im_end|>\"\n}"},
		"empty":            {`{}`, "{\n  \"eos_token\": \"<|im_end|>\"\n}"},
		"template of old":  {`{"chat_template": "old", "eos_token": "<|im_end|>"}`, `{"chat_template": T, "eos_token": "<|im_end|>"}`},
		"several of old":   {`{"chat_template": [{"name": "default", "template": "a"}], "eos_token": "<|im_end|>"}`, `{"chat_template": T, "eos_token": "<|im_end|>"}`},
		"template is same": {`{"eos_token": "<|im_end|>", "chat_template": T }`, `{"eos_token": "<|im_end|>", "chat_template": T }`},
	} {
		template := `"{{ messages }}\n\"é\""`
		file := strings.Replace(row.file, "T }", template+" }", 1)
		files, err := hf.Describe(tiny(), safetensors.F32, map[string][]byte{hf.TokenizerConfigFile: []byte(file)}, generation())
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(strings.Replace(row.want, "T }", template+" }", 1), "T,", template+",", 1)
		if diff := cmp.Diff(want, string(files[hf.TokenizerConfigFile])); diff != "" {
			t.Errorf("%s: want (-) got (+):\n%s", name, diff)
		}
	}
}

func TestDescribeRefuses(t *testing.T) {
	silent := generation()
	silent.Stop = nil
	if _, err := hf.Describe(tiny(), safetensors.F32, nil, silent); err == nil || !strings.Contains(err.Error(), "no token ends a turn") {
		t.Errorf("without an end: error %v", err)
	}
	for _, bad := range []string{"[]", `{"eos_token":`, "null x"} {
		_, err := hf.Describe(tiny(), safetensors.F32, map[string][]byte{hf.TokenizerConfigFile: []byte(bad)}, generation())
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer_config.json: ") {
			t.Errorf("%q: error %v, want one that names the file", bad, err)
		}
	}
}
