package tokenizer

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"strings"
)

// file is the supported part of tokenizer.json.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  *preTokenizer   `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       *step           `json:"decoder"`
	Model         model           `json:"model"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// preTokenizer is a Sequence or the fields of a step that stands alone.
type preTokenizer struct {
	Type           string `json:"type"`
	Steps          []step `json:"pretokenizers,omitempty"`
	AddPrefixSpace *bool  `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool  `json:"trim_offsets,omitempty"`
	UseRegex       *bool  `json:"use_regex,omitempty"`
}

// step is a ByteLevel or Split component.
type step struct {
	Type           string        `json:"type"`
	Pattern        *splitPattern `json:"pattern,omitempty"`
	Behavior       string        `json:"behavior,omitempty"`
	Invert         *bool         `json:"invert,omitempty"`
	AddPrefixSpace *bool         `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool         `json:"trim_offsets,omitempty"`
	UseRegex       *bool         `json:"use_regex,omitempty"`
}

type splitPattern struct {
	Regex string `json:"Regex"`
}

type model struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       []mergeText      `json:"merges"`
}

// mergeText is a merge in the file: ["a", "b"], or "a b" in older files.
type mergeText [2]string

// UnmarshalJSONFrom accepts both spellings.
func (m *mergeText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var parts []string
	if value.Kind() == '"' {
		var old string
		if err := json.Unmarshal(value, &old); err != nil {
			return err
		}
		parts = strings.Split(old, " ")
	} else if err := json.Unmarshal(value, &parts); err != nil {
		return fmt.Errorf("merge %s is not two tokens", value)
	}
	if len(parts) != 2 {
		return fmt.Errorf("merge %s is not two tokens", value)
	}
	*m = mergeText{parts[0], parts[1]}
	return nil
}

// Marshal returns the tokenizer as tokenizer.json. Equal tokenizers give equal bytes.
func (t *Tokenizer) Marshal() ([]byte, error) {
	no, yes := false, true
	byteLevel := step{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes, UseRegex: &no}
	f := file{
		Version: "1.0",
		PreTokenizer: &preTokenizer{Type: "Sequence", Steps: []step{
			{Type: "Split", Pattern: &splitPattern{t.regex}, Behavior: "Isolated", Invert: &no},
			byteLevel,
		}},
		PostProcessor: t.post,
		Decoder:       &byteLevel,
		Model:         model{Type: "BPE", Vocab: map[string]int32{}, Merges: []mergeText{}, IgnoreMerges: t.whole != nil},
	}
	if t.byLevel {
		f.PreTokenizer = &preTokenizer{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes, UseRegex: &yes}
	}
	if t.nfc != nil {
		f.Normalizer = json.RawMessage(`{"type":"NFC"}`)
	}
	names := t.names()
	for id, name := range names {
		if a := t.addedAt(int32(id)); a == nil || a.inVocab {
			f.Model.Vocab[name] = int32(id)
		}
	}
	for _, a := range t.added {
		f.AddedTokens = append(f.AddedTokens, addedToken{a.id, a.content, a.singleWord, a.lstrip, a.rstrip, a.normalized, a.control})
	}
	for _, p := range t.order {
		f.Model.Merges = append(f.Model.Merges, mergeText{names[p.left], names[p.right]})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(f); err != nil {
		return nil, fmt.Errorf("encode tokenizer: %w", err)
	}
	return b.Bytes(), nil
}

// names returns the spelling of each id in the file: bytes through the
// printable alphabet, added tokens as they are.
func (t *Tokenizer) names() []string {
	alphabet := byteAlphabet()
	names := make([]string, len(t.content))
	for id, content := range t.content {
		if a := t.addedAt(int32(id)); a != nil {
			names[id] = a.content
			continue
		}
		spelled := make([]rune, len(content))
		for i, b := range content {
			spelled[i] = alphabet[b]
		}
		names[id] = string(spelled)
	}
	return names
}
