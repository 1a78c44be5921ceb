package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"temper/internal/config"
)

const root = "../../.."

// TestCommittedFilesAreFresh: what the declarations say today is what is committed.
func TestCommittedFilesAreFresh(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(string(want), "\n")); diff != "" {
			t.Errorf("%s is stale, run ./task generate (-committed +generated):\n%.2000s", path, diff)
		}
	}
}

// TestEveryKeyIsInThePage, with the name that a configuration gives it.
func TestEveryKeyIsInThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	var count func(reflect.Type) int
	count = func(t reflect.Type) int {
		n := 0
		for i := range t.NumField() {
			f := t.Field(i).Type
			switch {
			case f == toolsType:
				f = reflect.TypeFor[config.ToolOptions]() // names are no keys
			case f.Kind() == reflect.Slice:
				f = f.Elem()
			}
			if n++; f.Kind() == reflect.Struct {
				n += count(f)
			}
		}
		return n
	}
	keys := count(reflect.TypeFor[config.Run]())
	variables := reflect.TypeFor[config.Process]().NumField()
	if got := strings.Count(string(page), "\n| `"); got != keys+variables {
		t.Errorf("%d rows, want %d keys and %d variables", got, keys, variables)
	}
	for _, want := range []string{
		"\n| `lr` | number | `0.002` | 1e-12 to 1 | no | The highest learning rate", "\n| `lr` | number | `0.0004` | 1e-12 to 1 | yes | The highest",
		"\n| `until` | [section](#stagesuntil) |", "\n## `stages[].until`\n", "\n| `tool_memory` | size | `256MiB` | at least 64MiB | yes |",
		"\n| `level` | text | no correction | token, sequence | no |", "| `TEMPER_HOME` | `temper-data` |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("config.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate checks YAML as an editor would: with a reader that is not ours.
func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	var read any
	if err := yaml.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

// TestConfigurationsFitTheSchema: those of the repository, and each in its frozen
// form, which states every key.
func TestConfigurationsFitTheSchema(t *testing.T) {
	schema := compile(t)
	files, err := filepath.Glob(filepath.Join(root, "configs/*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("configurations %v, error %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		run, err := config.LoadFile(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		frozen, err := run.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, frozen); err != nil {
			t.Errorf("%s, frozen: %v", file, err)
		}
	}
}

// TestSchemaAndLoadAgree on values at and beyond the ends of ranges.
func TestSchemaAndLoadAgree(t *testing.T) {
	schema := compile(t)
	const stage = "stages: [{name: a}]\n"
	for text, good := range map[string]bool{
		stage:                                                                   true,
		stage + "rl: {loss: {dual_clip: 0}}":                                    true,
		stage + "rl: {loss: {dual_clip: 3}}":                                    true,
		stage + "rl: {loss: {dual_clip: 1}}":                                    false,
		stage + "rl: {loss: {objective: cispo}}":                                true,
		stage + "rl: {loss: {objective: ppo}}":                                  false,
		stage + "rl: {loss: {clip_low: 2}}":                                     false,
		stage + "rl: {roc: {mode: best}}":                                       false,
		stage + "rollout: {tool_timeout: 1m30s, tool_memory: 64MiB}":            true,
		stage + "rollout: {tool_memory: 134217728}":                             true,
		stage + "rollout: {tool_memory: lots}":                                  false,
		stage + "rollout: {tool_timeout: soon}":                                 false,
		stage + "rollout: {chat_template: rstar2, tools: [python, none, bash]}": false,
		stage + "rollout: {chat_template: rstar2, template_vars: {a: 1, b: x}}": true,
		stage + "rollout: {tools: [python]}":                                    true,
		stage + "rollout: {tools: {python: {session: true}}}":                   true,
		stage + "rollout: {tools: {python: {}}}":                                true,
		stage + "rollout: {tools: {python: {session: 1}}}":                      false,
		stage + "rollout: {tools: {python: {sesion: true}}}":                    false,
		stage + "rollout: {tools: {bash: {}}}":                                  false,
		stage + "rollout: {tools: python}":                                      false,
		stage + "checkpoint: {keep_policies: 1}":                                false,
		stage + "checkpoint: {keep_policies: 2}":                                true,
		stage + "seed: -1":                                                      false,
		stage + "seed: 1.5":                                                     false,
		stage + "name: Big":                                                     false,
		stage + "sft: {data: {env: maze}}":                                      false,
		stage + "nope: 1":                                                       false,
		stage + "watch: {pause: yes please}":                                    false,
		"stages: []":                                                            false,
		"name: x":                                                               false,
		"stages: [{max_turns: 2}]":                                              false,
		"stages: [{name: a, nope: 1}]":                                          false,
	} {
		_, err := config.Load("f", []byte(text), nil)
		if (err == nil) != good {
			t.Errorf("%s: Load says %v", text, err)
		}
		if err := validate(t, schema, []byte(text)); (err == nil) != good {
			t.Errorf("%s: the schema says %v", text, err)
		}
	}
}

// TestSchemaDescribesEveryKey with words, and forbids others.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		if text, ok := node["description"].(string); !ok || len(text) < 10 {
			t.Errorf("%s: description %q", path, text)
		}
		if items, ok := node["items"].(map[string]any); ok && items["properties"] != nil {
			walk(path+"[]", items)
		}
		properties, ok := node["properties"].(map[string]any)
		if !ok {
			return
		}
		if node["additionalProperties"] != false {
			t.Errorf("%s: takes unknown keys", path)
		}
		for name, inner := range properties {
			walk(path+"."+name, inner.(map[string]any))
		}
	}
	var whole map[string]any
	if err := json.Unmarshal([]byte(config.Schema()), &whole); err != nil {
		t.Fatal(err)
	}
	walk("", whole)
}
