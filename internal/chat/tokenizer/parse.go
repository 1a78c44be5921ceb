package tokenizer

import (
	"cmp"
	jsonv2 "encoding/json/v2"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

const (
	// maxVocab bounds the ids that a file may use.
	maxVocab = 1 << 20
	// maxFile bounds a file in bytes; vocabularies of 256K tokens take 33 MB.
	maxFile = 128 << 20
)

// Parse reads tokenizer.json. It refuses a file that it would not follow exactly. It
// ignores truncation and padding; see Notes.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("parse tokenizer: %d bytes, the limit is %d", len(data), maxFile)
	}
	var f file
	if err := jsonv2.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	t := &Tokenizer{merges: newMergeTable(len(f.Model.Merges)), cache: newCache()}
	if err := t.components(&f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	if err := t.fillTables(&f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	return t, nil
}

func (t *Tokenizer) fillTables(f *file) error {
	vocab := f.Model.Vocab
	t.content = make([][]byte, 0, len(vocab)+len(f.AddedTokens))
	if err := t.fillAdded(f.AddedTokens, &f.Model); err != nil {
		return err
	}
	if err := t.fillVocab(vocab); err != nil {
		return err
	}
	if err := t.fillBytes(vocab); err != nil {
		return err
	}
	if err := t.checkIDs(len(vocab)); err != nil {
		return err
	}
	if err := t.fillMerges(&f.Model); err != nil {
		return err
	}
	t.seal()
	if f.Model.IgnoreMerges {
		t.whole = make(map[string]int32, len(vocab))
		for id, content := range t.content {
			if !t.IsSpecial(int32(id)) {
				t.whole[string(content)] = int32(id)
			}
		}
	}
	return t.checkTemplate()
}

// fillAdded sets the added tokens, in the order of the file.
func (t *Tokenizer) fillAdded(tokens []addedToken, m *model) error {
	runes := runeBytes()
	seen := make(map[string]bool, len(tokens))
	for _, a := range tokens {
		id, inVocab := m.Vocab[a.Content]
		switch {
		case a.Content == "":
			return fmt.Errorf("added token with id %d is empty", a.ID)
		case seen[a.Content]:
			return fmt.Errorf("added token %q is given twice", a.Content)
		case a.Normalized && t.normalize(a.Content) != a.Content:
			return fmt.Errorf("added token %q is normalized but not in form NFC itself: not supported", a.Content)
		case inVocab && id != a.ID:
			return fmt.Errorf("added token %q has id %d, the vocabulary says %d", a.Content, a.ID, id)
		case inVocab && m.IgnoreMerges:
			return fmt.Errorf("added token %q is in the vocabulary too: not supported with model.ignore_merges", a.Content)
		}
		seen[a.Content] = true
		if err := t.setContent(a.ID, a.Content, decodeContent(runes, a.Content)); err != nil {
			return err
		}
		t.added = append(t.added, added{
			id: a.ID, content: a.Content, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip,
			normalized: a.Normalized, control: a.Special, inVocab: inVocab,
		})
	}
	return nil
}

// checkIDs refuses a vocabulary with gaps, and added tokens with other ids than
// those that the reference library gives them: the next free one after it.
func (t *Tokenizer) checkIDs(numVocab int) error {
	for id, content := range t.content[:min(numVocab, len(t.content))] {
		if content == nil {
			return fmt.Errorf("vocabulary has no token with id %d but %d tokens", id, numVocab)
		}
	}
	next := int32(numVocab)
	for i := range t.added {
		a := &t.added[i]
		if a.inVocab {
			continue
		}
		if a.id != next {
			return fmt.Errorf("added token %q has id %d, want %d, the first after the vocabulary and the tokens before it", a.content, a.id, next)
		}
		next++
	}
	return nil
}

// decodeContent returns the text that the decoder of the reference library gives for an
// added token. The library reads every token in the alphabet of bytes and keeps a
// token that is not spelled in it. ASCII without spaces never changes.
func decodeContent(runes map[rune]byte, spelled string) []byte {
	if content, err := decodeName(runes, spelled); err == nil {
		return content
	}
	return []byte(spelled)
}

// seal builds the tables that find added tokens.
func (t *Tokenizer) seal() {
	slices.SortFunc(t.added, func(a, b added) int { return cmp.Compare(a.id, b.id) })
	var given, normalized []*added
	for i := range t.added {
		if a := &t.added[i]; a.normalized {
			normalized = append(normalized, a)
		} else {
			given = append(given, a)
		}
	}
	t.given, t.normalized = newMatcher(given), newMatcher(normalized)
}

// fillVocab sets the bytes of all other ids, in sorted order so that a bad file
// gives the same error each time.
func (t *Tokenizer) fillVocab(vocab map[string]int32) error {
	addedNames := make(map[string]bool, len(t.added))
	for i := range t.added {
		addedNames[t.added[i].content] = true
	}
	runes := runeBytes()
	for _, name := range slices.Sorted(maps.Keys(vocab)) {
		if addedNames[name] {
			continue
		}
		content, err := decodeName(runes, name)
		if err != nil {
			return err
		}
		if err := t.setContent(vocab[name], name, content); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) fillBytes(vocab map[string]int32) error {
	for b, r := range byteAlphabet() {
		id, ok := vocab[string(r)]
		if !ok {
			return fmt.Errorf("vocabulary lacks byte %d", b)
		}
		if slices.ContainsFunc(t.added, func(a added) bool { return a.id == id }) {
			return fmt.Errorf("byte %d is a special token: plain text could not be told from it", b)
		}
		t.byteIDs[b] = id
	}
	return nil
}

// setContent gives an id its bytes.
func (t *Tokenizer) setContent(id int32, name string, content []byte) error {
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
	isAdded := make(map[int32]bool, len(t.added))
	for i := range t.added {
		isAdded[t.added[i].id] = true
	}
	t.order = make([]pair, 0, len(m.Merges))
	for rank, mt := range m.Merges {
		left, okLeft := m.Vocab[mt[0]]
		right, okRight := m.Vocab[mt[1]]
		id, ok := m.Vocab[mt[0]+mt[1]]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("merge %d of %q and %q: not in the vocabulary", rank, mt[0], mt[1])
		}
		if isAdded[left] || isAdded[right] || isAdded[id] {
			return fmt.Errorf("merge %d of %q and %q involves a special token", rank, mt[0], mt[1])
		}
		if t.merges.rank(left, right) != noMerge {
			return fmt.Errorf("merge %d of %q and %q is given twice", rank, mt[0], mt[1])
		}
		t.merges.add(pair{left, right}, id)
		t.order = append(t.order, pair{left, right})
	}
	return nil
}

// Load reads a tokenizer.json file.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing is written to it
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, the limit is %d", path, info.Size(), maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
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
