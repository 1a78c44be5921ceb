package hf_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"temper/trainer/weights/hf"
)

// TestBadDirectories: each is an error of exactly these lines.
func TestBadDirectories(t *testing.T) {
	const index, first, single = "model.safetensors.index.json", "model-00001-of-00003.safetensors", "model.safetensors"
	const norm = "model.norm.weight"
	tied, untied := contents(t, "testdata/tied"), contents(t, "testdata/untied")
	replace := func(text, old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(text, old, with, 1)
	}
	for name, row := range map[string]struct {
		source string
		files  map[string]string
		want   []string
	}{
		"empty": {"", nil, []string{"config.json: no such file or directory", "neither model.safetensors nor model.safetensors.index.json is there"}},
		"truncated": {"tied", map[string]string{single: tied[single][:90_000]},
			[]string{"model.safetensors: tensor model.layers.1.self_attn.q_proj.weight: offsets [82688, 90880] reach beyond the 87584 bytes of data"}},
		"corrupt header": {"tied", map[string]string{single: replace(tied[single], `"dtype":"F32"`, `"dtype":"F32"]`)},
			[]string{"model.safetensors: header: tensor model.embed_tokens.weight: invalid character ']' after object key:value pair"}},
		"header bomb": {"tied", map[string]string{single: string(binary.LittleEndian.AppendUint64(nil, 1<<60))},
			[]string{"model.safetensors: header of 1152921504606846976 bytes, limit is 104857600"}},
		"overlap": {"tied", map[string]string{single: replace(tied[single], "[8192,8320]", "[8191,8319]")},
			[]string{"model.safetensors: tensor model.layers.0.input_layernorm.weight: offsets [8191, 8319] overlap tensor model.embed_tokens.weight, which ends at 8192"}},
		"wrong shape": {"tied", map[string]string{single: replace(tied[single], `"shape":[64,32]`, `"shape":[32,64]`)},
			[]string{"model.safetensors: tensor model.embed_tokens.weight: shape [32 64], want [64 32]"}},
		"wrong type": {"tied", map[string]string{single: replace(tied[single], `"dtype":"F32"`, `"dtype":"I32"`)},
			[]string{"model.safetensors: tensor model.embed_tokens.weight: dtype I32, want F32, F16 or BF16"}},
		"missing and extra": {"tied", map[string]string{single: replace(tied[single], norm, "model.narm.weight")},
			[]string{"tensor model.norm.weight is missing", "model.safetensors: tensor model.narm.weight is no part of the network"}},
		"no head": {"tied", map[string]string{"config.json": replace(tied["config.json"], `"tie_word_embeddings": true`, `"tie_word_embeddings": false`)},
			[]string{"tensor lm_head.weight is missing"}},
		"too many layers": {"tied", map[string]string{"config.json": replace(replace(tied["config.json"], `"num_hidden_layers": 2`, `"num_hidden_layers": 2000000000`), "layer_types", "_layer_types")},
			[]string{"config.json: num_hidden_layers: 2000000000, but the weights are 24 tensors"}},
		"config and weights": {"tied", map[string]string{"config.json": replace(tied["config.json"], `"default"`, `"longrope"`), single: "x"},
			[]string{`config.json: rope_parameters: type "longrope" is not supported, want default, linear, dynamic, llama3, yarn or null`,
				"model.safetensors: truncated: 1 bytes, want at least the 8 of the header's length"}},
		"absent files": {"untied", map[string]string{first: "", "model-00003-of-00003.safetensors": ""},
			[]string{index + " names " + first + ", which is not there", index + " names model-00003-of-00003.safetensors, which is not there"}},
		"misplaced": {"untied", map[string]string{index: replace(untied[index], `"lm_head.weight": "model-00003-of-00003.safetensors"`, `"lm_head.weight": "model-00002-of-00003.safetensors"`)},
			[]string{index + " places tensor lm_head.weight in model-00002-of-00003.safetensors, which does not hold it"}},
		"unlisted": {"untied", map[string]string{index: replace(untied[index], `"model.layers.0.mlp.up_proj.weight": "model-00001-of-00003.safetensors",`, "")},
			[]string{first + ": tensor model.layers.0.mlp.up_proj.weight is not in " + index}},
		"in two files": {"untied", map[string]string{
			index:                     replace(untied[index], `"weight_map": {`, `"weight_map": {"copy": "model-00004.safetensors",`),
			"model-00004.safetensors": untied["model-00003-of-00003.safetensors"],
		}, []string{"tensor lm_head.weight is in model-00003-of-00003.safetensors and in model-00004.safetensors",
			index + " places tensor copy in model-00004.safetensors, which does not hold it"}},
		"outside": {"untied", map[string]string{index: replace(untied[index], "model-00003-of-00003.safetensors", "../model.safetensors")},
			[]string{index + `: tensor lm_head.weight: file "../model.safetensors" is not in this directory`}},
		"index without map": {"untied", map[string]string{index: "{}"}, []string{index + ": weight_map is missing or empty"}},
		"both layouts": {"untied", map[string]string{single: tied[single]},
			[]string{index + " does not name model.safetensors: it is not clear which weights count"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if row.source != "" {
				dir = copied(t, "testdata/"+row.source, row.files)
			}
			m, err := hf.Load(dir)
			if err == nil {
				m.Close()
				t.Fatal("it loads")
			}
			got := strings.ReplaceAll(err.Error(), dir+": ", "")
			if want := strings.Join(row.want, "\n"); got != want {
				t.Errorf("error\n%s\nwant\n%s", got, want)
			}
		})
	}
	pipes := t.TempDir() // that nobody writes to
	for _, name := range []string{"config.json", single} {
		if err := syscall.Mkfifo(filepath.Join(pipes, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hf.Load(pipes); err == nil || strings.Count(err.Error(), "no regular file") != 2 {
		t.Errorf("pipes: error %v", err)
	}
	if _, err := hf.Load("testdata/none"); err == nil || !os.IsNotExist(err) && err.Error() != "testdata/none: no such file or directory" {
		t.Errorf("no directory: error %v", err)
	}
}

func TestLogitsRefuseBadIDs(t *testing.T) {
	m := load(t, "testdata/tied")
	for want, ids := range map[string][]int32{
		"0 ids, want 1 to 128 (max_position_embeddings)":                                                           nil,
		"129 ids, want 1 to 128 (max_position_embeddings)":                                                         make([]int32, 129),
		"id 64 at position 1 is outside the vocabulary of 64\nid -1 at position 2 is outside the vocabulary of 64": {0, 64, -1},
	} {
		if _, err := m.Logits("go", ids, hf.LastRow); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
