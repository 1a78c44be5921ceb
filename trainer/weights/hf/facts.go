package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TokenizerFacts describes the tokenizer's files.
type TokenizerFacts struct {
	Model         string   `json:"model"` // BPE
	Vocabulary    int      `json:"vocabulary"`
	Merges        int      `json:"merges"`
	AddedTokens   int      `json:"added_tokens"`
	MaxID         int      `json:"max_id"`
	PreTokenizers []string `json:"pre_tokenizers"`
	EOS           string   `json:"eos"`
	Pad           string   `json:"pad"`
	// Template is the file with the chat template, "" if there is none.
	Template      string `json:"template"`
	TemplateBytes int    `json:"template_bytes"`
}

// Tokenizer reads the tokenizer's files. They are optional: without them the
// facts are zero, and problems reports the missing files. The error of a file that exists and
// cannot be read is a problem, too.
func (m *Model) Tokenizer() (facts TokenizerFacts, problems []error) {
	note := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	note(m.vocabulary(&facts))
	if facts.MaxID >= m.Config.VocabSize {
		note(fmt.Errorf("%s: id %d is outside the vocabulary of %d", TokenizerFile, facts.MaxID, m.Config.VocabSize))
	}
	note(m.template(&facts))
	return facts, problems
}

func (m *Model) vocabulary(facts *TokenizerFacts) error {
	var file struct {
		Model struct {
			Type   string            `json:"type"`
			Vocab  map[string]int    `json:"vocab"`
			Merges []json.RawMessage `json:"merges"`
		} `json:"model"`
		Added []struct {
			ID int `json:"id"`
		} `json:"added_tokens"`
		Pre *preTokenizer `json:"pre_tokenizer"`
	}
	if err := m.readJSON(TokenizerFile, &file); err != nil {
		return err
	}
	facts.Model, facts.Vocabulary, facts.Merges = file.Model.Type, len(file.Model.Vocab), len(file.Model.Merges)
	facts.AddedTokens = len(file.Added)
	for _, id := range file.Model.Vocab {
		facts.MaxID = max(facts.MaxID, id)
	}
	for _, added := range file.Added {
		facts.MaxID = max(facts.MaxID, added.ID)
	}
	if file.Pre != nil {
		facts.PreTokenizers = file.Pre.names()
	}
	return nil
}

// preTokenizer is a step of splitting, or a sequence of steps.
type preTokenizer struct {
	Type  string         `json:"type"`
	Steps []preTokenizer `json:"pretokenizers"`
}

func (p preTokenizer) names() []string {
	if p.Type != "Sequence" {
		return []string{p.Type}
	}
	var out []string
	for _, step := range p.Steps {
		out = append(out, step.names()...)
	}
	return out
}

// template finds the chat template: a separate file, which newer versions of
// transformers write and prefer, or a field.
func (m *Model) template(facts *TokenizerFacts) error {
	var config struct {
		Template json.RawMessage `json:"chat_template"`
		EOS      json.RawMessage `json:"eos_token"`
		Pad      json.RawMessage `json:"pad_token"`
	}
	if err := m.readJSON(TokenizerConfigFile, &config); err != nil {
		return err
	}
	facts.EOS, facts.Pad = tokenText(config.EOS), tokenText(config.Pad)
	data, err := m.read(TemplateFile, maxConfig)
	switch {
	case err == nil:
		facts.Template, facts.TemplateBytes = TemplateFile, len(data)
	case !errors.Is(err, os.ErrNotExist):
		return err
	case len(config.Template) > 0 && string(config.Template) != "null":
		facts.Template, facts.TemplateBytes = TokenizerConfigFile, len(tokenText(config.Template))
	default:
		return fmt.Errorf("no chat template: neither %s nor chat_template in %s", TemplateFile, TokenizerConfigFile)
	}
	return nil
}

// tokenText returns a string, or the content of a token that is written as an
// object; "" for anything else.
func tokenText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var token struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &token) == nil {
		return token.Content
	}
	return strings.TrimSpace(string(raw))
}

func (m *Model) readJSON(name string, v any) error {
	data, err := m.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
