package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/chat/jinja"
)

// maxConfigFile is the longest tokenizer_config.json that LoadTemplate reads, in bytes.
const maxConfigFile = 64 << 20

// tokenizerConfig holds the fields of tokenizer_config.json that a template needs.
type tokenizerConfig struct {
	templates map[string]string
	tokens    map[string]string
}

// Files of a checkpoint that say how to prompt it.
const (
	configFile   = "tokenizer_config.json"
	templateFile = "chat_template.jinja"
)

// ErrNoTemplate means that a checkpoint has no chat template.
var ErrNoTemplate = errors.New("has no chat template")

// LoadTemplate reads the chat template of a checkpoint directory; see CheckpointTemplate.
func LoadTemplate(dir, name string, withTools bool) (*Template, error) {
	files := map[string][]byte{}
	for file, limit := range map[string]int64{configFile: maxConfigFile, templateFile: jinja.MaxSource} {
		data, err := readLimited(filepath.Join(dir, file), limit)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[file] = data
	}
	return CheckpointTemplate(dir, files, name, withTools)
}

// CheckpointTemplate reads the chat template among a checkpoint's files:
// chat_template.jinja if there is one, else chat_template in tokenizer_config.json.
// name chooses from a list of named templates. An empty name means tool_use where
// withTools is set and the list has it, else default. from names the place in errors.
func CheckpointTemplate(from string, files map[string][]byte, name string, withTools bool) (*Template, error) {
	cfg, err := parseTokenizerConfig(files[configFile])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(from, configFile), err)
	}
	if source, ok := files[templateFile]; ok {
		file := filepath.Join(from, templateFile)
		if name != "" && name != "default" {
			return nil, fmt.Errorf("%s is one template and has none named %q", file, name)
		}
		return NewTemplate(file, string(source), cfg.tokens)
	}
	if len(cfg.templates) == 0 {
		return nil, fmt.Errorf("%s %w: neither %s nor chat_template in %s", from, ErrNoTemplate, templateFile, configFile)
	}
	_, hasToolUse := cfg.templates["tool_use"]
	switch {
	case name != "":
	case withTools && hasToolUse:
		name = "tool_use"
	default:
		name = "default"
	}
	text, ok := cfg.templates[name]
	if !ok {
		names := slices.Sorted(keysOf(cfg.templates))
		return nil, fmt.Errorf("%s has no chat template %q, only %s", from, name, strings.Join(names, ", "))
	}
	return NewTemplate(filepath.Join(from, configFile)+":"+name, text, cfg.tokens)
}

func readLimited(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d", path, info.Size(), limit)
	}
	return os.ReadFile(path)
}

// parseTokenizerConfig reads the templates and the named tokens. Empty data has none.
func parseTokenizerConfig(data []byte) (tokenizerConfig, error) {
	cfg := tokenizerConfig{templates: map[string]string{}, tokens: map[string]string{}}
	if data == nil {
		return cfg, nil
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return cfg, err
	}
	for key, raw := range file {
		if text, ok := tokenText(raw); ok && strings.HasSuffix(key, "_token") {
			cfg.tokens[key] = text
		}
	}
	if raw, ok := file["chat_template"]; ok && string(raw) != "null" {
		if err := cfg.addTemplates(raw); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// tokenText reads a token, which is a string or an object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text, true
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}

// addTemplates reads chat_template: one template, or a list of named ones.
func (c *tokenizerConfig) addTemplates(raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		c.templates["default"] = one
		return nil
	}
	var named []struct{ Name, Template *string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return errors.New("chat_template must be a string or a list of objects with name and template")
	}
	for i, t := range named {
		if t.Name == nil || t.Template == nil {
			return fmt.Errorf("chat_template[%d] must have name and template", i)
		}
		c.templates[*t.Name] = *t.Template
	}
	return nil
}

// ReadTemplate reads the template of one file.
func ReadTemplate(path string) (*Template, error) {
	source, err := readLimited(path, jinja.MaxSource)
	if err != nil {
		return nil, err
	}
	return NewTemplate(path, string(source), nil)
}

// storedTemplate is all of a template that a render depends on.
type storedTemplate struct {
	Name   string            `json:"name"`
	Source string            `json:"source"`
	Tokens map[string]string `json:"tokens,omitempty"`
}

// Marshal returns the template as JSON, equal bytes for equal templates.
func (t *Template) Marshal() ([]byte, error) {
	return json.Marshal(storedTemplate{t.name, t.source, t.tokens})
}

// UnmarshalTemplate reads what Marshal wrote.
func UnmarshalTemplate(data []byte) (*Template, error) {
	var s storedTemplate
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return NewTemplate(s.Name, s.Source, s.Tokens)
}

// ParseRequest reads a Request from a JSON object: messages, tools,
// add_generation_prompt, continue_final_message. Every other member is a variable
// of the template, such as enable_thinking.
func ParseRequest(data []byte) (Request, error) {
	v, err := jinja.Decode(data)
	if err != nil {
		return Request{}, fmt.Errorf("request: %w", err)
	}
	object, ok := v.(*jinja.Dict)
	if !ok {
		return Request{}, errors.New("request: must be a JSON object with messages")
	}
	req := Request{Vars: jinja.NewDict()}
	var problems []error
	for _, e := range object.Entries() {
		name, _ := e.Key.(string)
		ok := true
		switch name {
		case "messages":
			req.Messages, ok = e.Value.(*jinja.List)
		case "tools":
			if e.Value != nil {
				req.Tools, ok = e.Value.(*jinja.List)
			}
		case "add_generation_prompt":
			req.AddGenerationPrompt, ok = e.Value.(bool)
		case "continue_final_message":
			req.ContinueFinalMessage, ok = e.Value.(bool)
		default:
			req.Vars.Set(name, e.Value)
		}
		if !ok {
			problems = append(problems, fmt.Errorf("request: %s has the wrong type", name))
		}
	}
	if req.Messages == nil && len(problems) == 0 {
		problems = append(problems, errors.New("request: messages is missing"))
	}
	return req, errors.Join(problems...)
}
