package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

func loadTools(t *testing.T, tools string, set map[string]string) (config.Run, error) {
	t.Helper()
	text := "stages: [{name: a, max_response_tokens: 64}]\nrollout: {chat_template: rstar2"
	if tools != "" {
		text += ", tools: " + tools
	}
	return config.Load("f", []byte(text+"}\n"), set)
}

// TestFormsOfTools: a list of names and a mapping to options mean the same tools,
// and the frozen form of tools without options is the list.
func TestFormsOfTools(t *testing.T) {
	const longName = "python_code_with_standard_io"
	for _, c := range []struct {
		name, tools string
		set         map[string]string
		want        config.Tools
		frozen      string
	}{
		{"none stated", "", nil, nil, ""},
		{"list", "[python]", nil, config.Tools{{Name: "python"}}, "  tools:\n  - python\n"},
		{"list in order", "[" + longName + ", python]", nil, config.Tools{{Name: longName}, {Name: "python"}}, "  tools:\n  - " + longName + "\n  - python\n"},
		{"mapping without options", "{python: {}}", nil, config.Tools{{Name: "python"}}, "  tools:\n  - python\n"},
		{"mapping to nothing", "{python: }", nil, config.Tools{{Name: "python"}}, "  tools:\n  - python\n"},
		{"session off", "{python: {session: false}}", nil, config.Tools{{Name: "python"}}, "  tools:\n  - python\n"},
		{
			"session", "{python: {session: true}}", nil,
			config.Tools{{Name: "python", Options: config.ToolOptions{Session: true}}}, "  tools:\n    python:\n      session: true\n",
		},
		{
			"mapping in order", "{" + longName + ": {session: true}, python: {}}", nil,
			config.Tools{{Name: longName, Options: config.ToolOptions{Session: true}}, {Name: "python"}},
			"  tools:\n    " + longName + ":\n      session: true\n    python: {}\n",
		},
		{
			"file in a list", "[python, {path: /a/my_tool.py}]", nil,
			config.Tools{{Name: "python"}, {Name: "my_tool", Options: config.ToolOptions{Path: "/a/my_tool.py"}}},
			"  tools:\n    python: {}\n    my_tool:\n      path: /a/my_tool.py\n",
		},
		{
			"file in a mapping", "{book: {path: /a/my_tool.py}}", nil,
			config.Tools{{Name: "book", Options: config.ToolOptions{Path: "/a/my_tool.py"}}}, "  tools:\n    book:\n      path: /a/my_tool.py\n",
		},
		{
			"by its key", "[python]", map[string]string{"rollout.tools.python.session": "true"},
			config.Tools{{Name: "python", Options: config.ToolOptions{Session: true}}}, "  tools:\n    python:\n      session: true\n",
		},
		{
			"by the key of a tool that was not named", "", map[string]string{"rollout.tools.python.session": "true"},
			config.Tools{{Name: "python", Options: config.ToolOptions{Session: true}}}, "  tools:\n    python:\n      session: true\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, err := loadTools(t, c.tools, c.set)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(run.Rollout.Tools, c.want); diff != "" {
				t.Errorf("tools: got -, want +\n%s", diff)
			}
			data, err := run.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), c.frozen) || c.frozen == "" && strings.Contains(string(data), "  tools:") {
				t.Errorf("the frozen form lacks %q:\n%s", c.frozen, data)
			}
			again, err := config.Load("frozen", data, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(again.Rollout.Tools, c.want); diff != "" {
				t.Errorf("read back: got -, want +\n%s", diff)
			}
		})
	}
}

func TestUnreadableToolsAreNamed(t *testing.T) {
	for tools, want := range map[string]string{
		"python":                             `f:2:41: rollout.tools: want a list of names, or a mapping from names to options, have "python"`,
		"[[python]]":                         "rollout.tools[0]: want a text, have a list",
		"[bash]":                             `f:2:42: rollout.tools[0]: is "bash", want one of python`,
		"{bash: {}}":                         `f:2:42: rollout.tools[0]: is "bash", want one of python`,
		"{python: true}":                     `rollout.tools.python: want a mapping, have "true"`,
		"{python: {session: 1}}":             `rollout.tools.python.session: want true or false, have "1"`,
		"{python: {sesion: true}}":           "rollout.tools.python.sesion: unknown key; did you mean session? (known here: path, session)",
		"[{pth: a.py}]":                      "rollout.tools[0].pth: unknown key; did you mean path?",
		"[{}]":                               "rollout.tools[0]: want a name, or {path: FILE.py}",
		"[{path: a.py}, {path: b/a.py}]":     `rollout.tools[1]: "a" is used twice`,
		"[{path: a.txt}]":                    `rollout.tools[0]: has the path "a.txt", want a file ending in .py`,
		"[{path: python.py}]":                "rollout.tools[0]: is the file python.py under the name of a tool of Temper",
		"{own: {path: a.py, session: true}}": "rollout.tools[0]: is a file with session",
		"{none: {session: true}}":            "rollout.tools[0]: is none and has options",
		"{python: {}, none: {}}":             "rollout.tools[1]: is none beside other tools",
	} {
		if _, err := loadTools(t, tools, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v\nwant %s", tools, err, want)
		}
	}
	for key, want := range map[string]string{
		"rollout.tools.python":        "rollout.tools.python: want a mapping",
		"rollout.tools.python.sesion": "unknown key",
		"rollout.tools.bash.session":  `is "bash", want one of python`,
		"rollout.tools[0].session":    `unknown key "session" (known here: name, options)`,
	} {
		if _, err := loadTools(t, "[python]", map[string]string{key: "true"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v\nwant %s", key, err, want)
		}
	}
}

// TestToolsOfAnotherRunStay: an override adds to a copy.
func TestToolsOfAnotherRunStay(t *testing.T) {
	run, err := loadTools(t, "[python]", nil)
	if err != nil {
		t.Fatal(err)
	}
	run.Amendments = []config.Amendment{{FromStep: 1, Set: map[string]string{"rollout.tools.python.session": "true"}}}
	if err := run.Validate(); err == nil || !strings.Contains(err.Error(), "cannot be changed during a run: the prompts of the run have this form") {
		t.Errorf("error %v, want a refusal", err)
	}
	if run.Rollout.Tools.WithSession() != nil {
		t.Errorf("the check of an amendment changed the run: %+v", run.Rollout.Tools)
	}
}
