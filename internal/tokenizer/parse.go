package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

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
	if err := t.fillTables(&f); err != nil {
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

func (t *Tokenizer) fillTables(f *file) error {
	if err := t.fillSpecials(f.AddedTokens, f.Model.Vocab); err != nil {
		return err
	}
	if err := t.fillVocab(f.Model.Vocab); err != nil {
		return err
	}
	return t.fillMerges(&f.Model)
}

func (t *Tokenizer) fillSpecials(added []addedToken, vocab map[string]int32) error {
	for _, a := range added {
		if a.Content == "" || a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("added token %q is empty or strips: not supported", a.Content)
		}
		if _, twice := t.Special(a.Content); twice {
			return fmt.Errorf("added token %q is given twice", a.Content)
		}
		if id, ok := vocab[a.Content]; ok && id != a.ID {
			return fmt.Errorf("added token %q has id %d, the vocabulary says %d", a.Content, a.ID, id)
		}
		if err := t.put(a.ID, a.Content, []byte(a.Content)); err != nil {
			return err
		}
		t.specials = append(t.specials, special{a.ID, a.Content})
	}
	slices.SortFunc(t.specials, func(a, b special) int { return cmp.Compare(a.id, b.id) })
	return nil
}

// fillVocab sets the bytes of all other ids, in sorted order so that a bad file
// gives the same error each time.
func (t *Tokenizer) fillVocab(vocab map[string]int32) error {
	runes := runeBytes()
	for _, name := range slices.Sorted(maps.Keys(vocab)) {
		if _, added := t.Special(name); added {
			continue
		}
		content, err := unspell(runes, name)
		if err != nil {
			return err
		}
		if err := t.put(vocab[name], name, content); err != nil {
			return err
		}
	}
	for b, r := range byteAlphabet() {
		id, ok := vocab[string(r)]
		if !ok {
			return fmt.Errorf("vocabulary lacks byte %d", b)
		}
		if t.IsSpecial(id) {
			return fmt.Errorf("byte %d is a special token: plain text could not be told from it", b)
		}
		t.byteIDs[b] = id
	}
	return nil
}

// put gives an id its bytes.
func (t *Tokenizer) put(id int32, name string, content []byte) error {
	if id < 0 || id >= maxVocab {
		return fmt.Errorf("token %q has id %d, want 0 to %d", name, id, maxVocab-1)
	}
	if missing := int(id) + 1 - len(t.content); missing > 0 {
		t.content = append(t.content, make([][]byte, missing)...)
	}
	if t.content[id] != nil {
		return fmt.Errorf("token %q shares id %d with another", name, id)
	}
	t.content[id] = content
	return nil
}

func (t *Tokenizer) fillMerges(m *model) error {
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
