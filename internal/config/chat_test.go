package config_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/tool/builtin"
)

func TestChatKeys(t *testing.T) {
	const stage = "stages: [{name: a, max_response_tokens: 64}]\n"
	tests := map[string]struct {
		rollout string
		want    []string
	}{
		"nothing":           {"{}", nil},
		"rstar2":            {"{chat_template: rstar2}", nil},
		"released":          {"{chat_template: rstar2-released, tools: [python_code_with_standard_io, python], answer: tag}", nil},
		"a file":            {"{chat_template: mine.jinja, tools: [none]}", nil},
		"small with a tool": {"{tools: [python], tools_in_prompt: true}", nil},
		"variables":         {"{chat_template: rstar2, template_vars: {enable_thinking: false, depth: 3}}", nil},
		"bad variables": {"{chat_template: rstar2, template_vars: {messages: x, a-b: y}}", []string{
			"rollout.template_vars.messages: is set by the rollout: choose another name", "rollout.template_vars.a-b: is no name of a variable"}},
		"variables of none":  {"{template_vars: {a: 1}}", []string{"rollout.template_vars.a: is set, but rollout.chat_template is empty"}},
		"unknown template":   {"{chat_template: llama}", []string{`rollout.chat_template: is "llama", want one of checkpoint, rstar2, rstar2-released, or a file ending in .jinja`}},
		"no checkpoint":      {"{chat_template: checkpoint}", []string{"rollout.chat_template: is checkpoint, but model.path and model.run are empty"}},
		"unknown tool":       {"{chat_template: rstar2, tools: [bash]}", []string{`rollout.tools[0]: is "bash", want one of python, `}},
		"twice and none":     {"{chat_template: rstar2, tools: [python, python, none], answer: box}", []string{`rollout.tools[1]: "python" is used twice`, "rollout.tools[2]: is none beside other tools", `rollout.answer: is "box", want one of tag, boxed`}},
		"tool of a template": {"{tools: [execute_python_code_with_standard_io]}", []string{"rollout.tools[0]: is execute_python_code_with_standard_io, but without rollout.chat_template there is python"}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load("f", []byte(stage+"rollout: "+c.rollout+"\n"), nil)
			if len(c.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
		})
	}
}

// TestTemplateFileCountsFromTheFolder, and a name is no path.
func TestTemplateFileCountsFromTheFolder(t *testing.T) {
	for value, want := range map[string]string{"prompts/mine.jinja": "prompts/mine.jinja", "rstar2": ""} {
		run, err := config.LoadFile("../../configs/ci.yaml", map[string]string{"rollout.chat_template": value})
		if err != nil {
			t.Fatal(err)
		}
		if want != "" {
			folder, err := filepath.Abs("../../configs")
			if err != nil {
				t.Fatal(err)
			}
			value = filepath.Join(folder, want)
		}
		if run.Rollout.ChatTemplate != value {
			t.Errorf("template %q, want %q", run.Rollout.ChatTemplate, value)
		}
	}
}

// TestNamesAreThoseOfTheFormat keeps the two packages at the same words.
func TestNamesAreThoseOfTheFormat(t *testing.T) {
	for _, name := range append(builtin.Names(), chat.NoTools) {
		set := map[string]string{"rollout.chat_template": chat.FormatRStar2, "rollout.tools": "[" + name + "]"}
		if _, err := config.LoadFile("../../configs/ci.yaml", set); err != nil {
			t.Error(err)
		}
	}
	for _, name := range chat.BuiltinNames() {
		run, err := config.LoadFile("../../configs/ci.yaml", map[string]string{"rollout.chat_template": name})
		if err != nil || !run.Rollout.Boxed() {
			t.Errorf("%s: boxed %v, error %v", name, run.Rollout.Boxed(), err)
		}
	}
}

// TestTemplateVarsSurviveTheFrozenForm, in which they are quoted.
func TestTemplateVarsSurviveTheFrozenForm(t *testing.T) {
	const text = "stages: [{name: a, max_response_tokens: 64}]\nrollout: {chat_template: rstar2, template_vars: {thinking: false, depth: 3, style: \"a: b\"}}\n"
	run, err := config.Load("f", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"thinking": "false", "depth": "3", "style": "a: b"}
	data, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Load("frozen", data, nil)
	if err != nil || !maps.Equal(run.Rollout.TemplateVars, want) || !maps.Equal(again.Rollout.TemplateVars, want) {
		t.Errorf("got %v, then %v (%v), want %v", run.Rollout.TemplateVars, again.Rollout.TemplateVars, err, want)
	}
}
