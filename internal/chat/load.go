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

// tokenizerConfig is what a template needs of tokenizer_config.json.
type tokenizerConfig struct {
	templates map[string]string
	tokens    map[string]string
}

// LoadTemplate reads the chat template of a checkpoint directory: that of
// chat_template.jinja, else the chat_template of tokenizer_config.json. Of a list
// of named templates it takes name; "" stands for tool_use where the request has
// tools and there is one, else for default.
func LoadTemplate(dir, name string, withTools bool) (*Template, error) {
	cfg, err := loadTokenizerConfig(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "chat_template.jinja")
	source, err := readLimited(file, jinja.MaxSource)
	if err == nil {
		if name != "" && name != "default" {
			return nil, fmt.Errorf("%s is one template and has none named %q", file, name)
		}
		return NewTemplate(file, string(source), cfg.tokens)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(cfg.templates) == 0 {
		return nil, fmt.Errorf("%s has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json", dir)
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
		return nil, fmt.Errorf("%s has no chat template %q, only %s", dir, name, strings.Join(names, ", "))
	}
	return NewTemplate(filepath.Join(dir, "tokenizer_config.json")+":"+name, text, cfg.tokens)
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

// loadTokenizerConfig reads the templates and named tokens; a missing file has none.
func loadTokenizerConfig(path string) (tokenizerConfig, error) {
	cfg := tokenizerConfig{templates: map[string]string{}, tokens: map[string]string{}}
	data, err := readLimited(path, maxConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg, nil
	}
	if err != nil {
		return cfg, err
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return cfg, fmt.Errorf("%s: %w", path, err)
	}
	for key, raw := range file {
		if text, ok := tokenText(raw); ok && strings.HasSuffix(key, "_token") {
			cfg.tokens[key] = text
		}
	}
	if raw, ok := file["chat_template"]; ok && string(raw) != "null" {
		if err := cfg.addTemplates(raw); err != nil {
			return cfg, fmt.Errorf("%s: %w", path, err)
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

// ParseRequest reads a Request from a JSON object: messages, tools,
// add_generation_prompt, continue_final_message; every other member is a variable
// of the template, as enable_thinking.
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
