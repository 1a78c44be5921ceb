package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// digitRegex is the pattern of the pre-tokenizer: each ASCII digit alone.
const digitRegex = "[0-9]"

// maxVocab bounds the ids that a file may use.
const maxVocab = 1 << 20

// file is tokenizer.json, as far as it is supported.
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

type preTokenizer struct {
	Type  string `json:"type"`
	Steps []step `json:"pretokenizers"`
}

// step is a ByteLevel or Split component.
type step struct {
	Type           string   `json:"type"`
	Pattern        *pattern `json:"pattern,omitempty"`
	Behavior       string   `json:"behavior,omitempty"`
	Invert         *bool    `json:"invert,omitempty"`
	AddPrefixSpace *bool    `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool    `json:"trim_offsets,omitempty"`
	UseRegex       *bool    `json:"use_regex,omitempty"`
}

type pattern struct {
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

// UnmarshalJSON accepts both spellings.
func (m *mergeText) UnmarshalJSON(data []byte) error {
	var old string
	if json.Unmarshal(data, &old) == nil {
		left, right, ok := cutSpace(old)
		if !ok {
			return fmt.Errorf("merge %q is not two tokens", old)
		}
		*m = mergeText{left, right}
		return nil
	}
	var parts []string
	if err := json.Unmarshal(data, &parts); err != nil || len(parts) != 2 {
		return fmt.Errorf("merge %s is not two tokens", data)
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
			{Type: "Split", Pattern: &pattern{digitRegex}, Behavior: "Isolated", Invert: &no},
			byteLevel,
		}},
		Decoder: &byteLevel,
		Model:   model{Type: "BPE", Vocab: map[string]int32{}, Merges: []mergeText{}},
	}
	names := t.names()
	for id, name := range names {
		if t.content[id] != nil {
			f.Model.Vocab[name] = int32(id)
		}
	}
	for _, s := range t.specials {
		f.AddedTokens = append(f.AddedTokens, addedToken{ID: s.id, Content: s.content, Special: true})
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
// printable alphabet, specials as they are.
func (t *Tokenizer) names() []string {
	alphabet := byteAlphabet()
	names := make([]string, len(t.content))
	for id, content := range t.content {
		if t.IsSpecial(int32(id)) {
			names[id] = string(content)
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

// Parse reads tokenizer.json. It refuses what it would not follow exactly.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	if err := f.supported(); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	t := &Tokenizer{merges: map[pair]merge{}}
	if err := t.fill(&f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	return t, nil
}

// supported names the first component that this package does not implement.
func (f *file) supported() error {
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("model.type %q is not supported, want BPE", m.Type)
	case m.Dropout != nil || m.ByteFallback || m.IgnoreMerges || set(m.Prefix) || set(m.Suffix):
		return fmt.Errorf("model has dropout, byte_fallback, ignore_merges, a prefix or a suffix: not supported")
	case !isNull(f.Normalizer):
		return fmt.Errorf("normalizer is not supported")
	case !isNull(f.Truncation) || !isNull(f.Padding):
		return fmt.Errorf("truncation and padding are not supported")
	}
	p := f.PreTokenizer
	if p == nil || p.Type != "Sequence" || len(p.Steps) != 2 {
		return fmt.Errorf("pre_tokenizer is not supported, want Split %s then ByteLevel", digitRegex)
	}
	split, level := p.Steps[0], p.Steps[1]
	if split.Type != "Split" || split.Pattern == nil || split.Pattern.Regex != digitRegex ||
		split.Behavior != "Isolated" || is(split.Invert) {
		return fmt.Errorf("pre_tokenizer split is not supported, want Isolated %s", digitRegex)
	}
	if level.Type != "ByteLevel" || is(level.AddPrefixSpace) || level.UseRegex == nil || *level.UseRegex {
		return fmt.Errorf("pre_tokenizer is not supported, want ByteLevel with use_regex false")
	}
	return nil
}

func isNull(m json.RawMessage) bool { return len(m) == 0 || string(m) == "null" }
func is(b *bool) bool               { return b != nil && *b }
func set(s *string) bool            { return s != nil && *s != "" }

func cutSpace(s string) (left, right string, ok bool) {
	l, r, ok := bytes.Cut([]byte(s), []byte(" "))
	return string(l), string(r), ok
}

// fill sets the tables from a supported file.
func (t *Tokenizer) fill(f *file) error {
	taken := map[int32]string{}
	put := func(id int32, name string, content []byte) error {
		if id < 0 || id >= maxVocab {
			return fmt.Errorf("token %q has id %d, want 0 to %d", name, id, maxVocab-1)
		}
		if other, ok := taken[id]; ok && other != name {
			return fmt.Errorf("tokens %q and %q share id %d", other, name, id)
		}
		taken[id] = name
		if missing := int(id) + 1 - len(t.content); missing > 0 {
			t.content = append(t.content, make([][]byte, missing)...)
		}
		t.content[id] = content
		return nil
	}
	for _, a := range f.AddedTokens {
		if a.Content == "" || a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("added token %q is empty or strips: not supported", a.Content)
		}
		if _, twice := t.Special(a.Content); twice {
			return fmt.Errorf("added token %q is given twice", a.Content)
		}
		if id, ok := f.Model.Vocab[a.Content]; ok && id != a.ID {
			return fmt.Errorf("added token %q has id %d, the vocabulary says %d", a.Content, a.ID, id)
		}
		if err := put(a.ID, a.Content, []byte(a.Content)); err != nil {
			return err
		}
		t.specials = append(t.specials, special{a.ID, a.Content})
	}
	slices.SortFunc(t.specials, func(a, b special) int { return cmp.Compare(a.id, b.id) })
	runes := runeBytes()
	for name, id := range f.Model.Vocab {
		if _, added := t.Special(name); added {
			continue
		}
		content, err := unspell(runes, name)
		if err != nil {
			return err
		}
		if err := put(id, name, content); err != nil {
			return err
		}
	}
	return t.fillModel(&f.Model)
}

// fillModel checks that all bytes have ids and sets the merges.
func (t *Tokenizer) fillModel(m *model) error {
	for b, r := range byteAlphabet() {
		id, ok := m.Vocab[string(r)]
		if !ok {
			return fmt.Errorf("vocabulary lacks byte %d", b)
		}
		t.byteIDs[b] = id
	}
	for rank, mt := range m.Merges {
		left, okLeft := m.Vocab[mt[0]]
		right, okRight := m.Vocab[mt[1]]
		id, ok := m.Vocab[mt[0]+mt[1]]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("merge %d of %q and %q: not in the vocabulary", rank, mt[0], mt[1])
		}
		if t.IsSpecial(left) || t.IsSpecial(right) || t.IsSpecial(id) {
			return fmt.Errorf("merge %d of %q and %q involves a special token", rank, mt[0], mt[1])
		}
		p := pair{left, right}
		if _, twice := t.merges[p]; twice {
			return fmt.Errorf("merge %d of %q and %q is given twice", rank, mt[0], mt[1])
		}
		t.merges[p] = merge{rank: rank, id: id}
		t.order = append(t.order, p)
	}
	return nil
}

// Load reads a tokenizer.json file.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Save writes a tokenizer.json file.
func (t *Tokenizer) Save(path string) error {
	data, err := t.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write tokenizer: %w", err)
	}
	return nil
}
