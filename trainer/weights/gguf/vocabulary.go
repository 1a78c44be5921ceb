package gguf

import (
	"encoding/json"
	"errors"
	"fmt"

	"temper/internal/chat/tokenizer"
)

// Kinds of tokens.
const (
	tokenNormal      = 1
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
)

// vocabulary is a tokenizer in llama.cpp's terms.
type vocabulary struct {
	pre    string // its name for the pattern that splits text
	tokens []string
	kinds  []int32
	merges []string
	notes  []string
}

// tokenizerFile is the part of tokenizer.json, as package tokenizer writes it, that
// a GGUF repeats.
type tokenizerFile struct {
	Added []struct {
		ID      int32  `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Pre struct {
		Type  string `json:"type"`
		Steps []struct {
			Pattern struct {
				Regex string `json:"Regex"`
			} `json:"pattern"`
		} `json:"pretokenizers"`
	} `json:"pre_tokenizer"`
	Model struct {
		Vocab  map[string]int32 `json:"vocab"`
		Merges [][2]string      `json:"merges"`
	} `json:"model"`
}

// patterns maps the regular expressions that package tokenizer knows to llama.cpp's
// names for them.
var patterns = map[string]string{
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      "qwen2",
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: "llama-bpe",
}

// readVocabulary translates a tokenizer.json for a network of size ids. Ids that the
// tokenizer does not have are unused tokens: the embedding is often padded.
func readVocabulary(data []byte, size int) (vocabulary, error) {
	if data == nil {
		return placeholders(size), nil
	}
	parsed, err := tokenizer.Parse(data)
	if err != nil {
		return vocabulary{}, err
	}
	if n := parsed.VocabSize(); n > size {
		return vocabulary{}, fmt.Errorf("the tokenizer has %d ids, but the model's vocab_size is %d", n, size)
	}
	canonical, err := parsed.Marshal()
	if err != nil {
		return vocabulary{}, err
	}
	var f tokenizerFile
	if err := json.Unmarshal(canonical, &f); err != nil {
		return vocabulary{}, err
	}
	return f.vocabulary(size), nil
}

func (f *tokenizerFile) vocabulary(size int) vocabulary {
	v := placeholders(size)
	v.notes = nil
	for text, id := range f.Model.Vocab {
		v.tokens[id], v.kinds[id] = text, tokenNormal
	}
	for _, a := range f.Added {
		v.tokens[a.ID], v.kinds[a.ID] = a.Content, tokenUserDefined
		if a.Special {
			v.kinds[a.ID] = tokenControl
		}
	}
	v.merges = make([]string, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		v.merges[i] = m[0] + " " + m[1]
	}
	v.pre = "default"
	switch {
	case f.Pre.Type == "ByteLevel":
		v.pre = "gpt-2"
	case len(f.Pre.Steps) > 0 && patterns[f.Pre.Steps[0].Pattern.Regex] != "":
		v.pre = patterns[f.Pre.Steps[0].Pattern.Regex]
	default:
		v.notes = append(v.notes, "llama.cpp has no name for the pattern that splits text here: token ids are right, but it may cut a text otherwise")
	}
	return v
}

// placeholders is the vocabulary of a model without a tokenizer. llama.cpp runs no
// model without texts of tokens, and these are never read.
func placeholders(size int) vocabulary {
	v := vocabulary{pre: "gpt-2", tokens: make([]string, size), kinds: make([]int32, size), merges: []string{}}
	for id := range v.tokens {
		v.tokens[id], v.kinds[id] = fmt.Sprintf("[PAD%d]", id), tokenUnused
	}
	v.notes = []string{"the model has no tokenizer: only token ids make sense"}
	return v
}

// endToken is the id that the model ends with; absent when config.json has none.
func endToken(config []byte) (uint32, bool, error) {
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return 0, false, err
	}
	if len(c.EOS) == 0 || string(c.EOS) == "null" {
		return 0, false, nil
	}
	var one uint32
	var list []uint32
	if json.Unmarshal(c.EOS, &one) == nil {
		return one, true, nil
	}
	if json.Unmarshal(c.EOS, &list) != nil || len(list) == 0 {
		return 0, false, errors.New("eos_token_id: want a token id or a list of them")
	}
	return list[0], true, nil
}
