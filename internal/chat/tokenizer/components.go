package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// problems collects the features of a file that this package does not implement.
type problems []string

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(p, "; "))
}

// components sets everything but the tables from the file. Its error names all
// fields that this package does not implement.
func (t *Tokenizer) components(f *file) error {
	var p problems
	if f.Model.Type != "BPE" {
		p.addf("model.type %q is not supported, want BPE", f.Model.Type)
	}
	f.Model.check(&p)
	t.setNormalizer(&p, f.Normalizer)
	t.setSplit(&p, f.PreTokenizer)
	if d := f.Decoder; d == nil || d.Type != "ByteLevel" {
		p.addf("decoder is not supported, want ByteLevel")
	}
	t.setPostProcessor(&p, f)
	for _, ignored := range []struct {
		key   string
		value json.RawMessage
	}{{"truncation", f.Truncation}, {"padding", f.Padding}} {
		if !isNull(ignored.value) {
			t.notes = append(t.notes, ignored.key+" is ignored: ids are those of the whole text and nothing else")
		}
	}
	return p.err()
}

func (m *model) check(p *problems) {
	for _, field := range []struct {
		name string
		used bool
	}{
		{"dropout", m.Dropout != nil && *m.Dropout != 0},
		{"byte_fallback", m.ByteFallback},
		{"continuing_subword_prefix", m.Prefix != nil && *m.Prefix != ""},
		{"end_of_word_suffix", m.Suffix != nil && *m.Suffix != ""},
	} {
		if field.used {
			p.addf("model.%s is not supported", field.name)
		}
	}
}

func (t *Tokenizer) setNormalizer(p *problems, raw json.RawMessage) {
	if isNull(raw) {
		return
	}
	if kind := typeOf(raw); kind != "NFC" {
		p.addf("normalizer.type %q is not supported, want NFC or no normalizer", kind)
		return
	}
	t.nfc = newComposer()
}

// typeOf returns the type of a component, "" for one without.
func typeOf(raw json.RawMessage) string {
	var c struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return ""
	}
	return c.Type
}

// setSplit accepts a Split with a known pattern followed by a ByteLevel without one,
// or a ByteLevel alone, whose pattern is GPT-2's.
func (t *Tokenizer) setSplit(p *problems, pre *preTokenizer) {
	switch {
	case pre == nil:
		p.addf("pre_tokenizer is missing, want Split then ByteLevel")
	case pre.Type == "ByteLevel":
		if isType(pre.AddPrefixSpace, true) {
			p.addf("pre_tokenizer.add_prefix_space true is not supported")
		}
		if isType(pre.UseRegex, true) {
			t.regex, t.byLevel, t.split = gpt2Regex, true, newSplitter(gpt2Regex)
		} else {
			p.addf("pre_tokenizer.use_regex false is not supported without a Split")
		}
	case pre.Type != "Sequence":
		p.addf("pre_tokenizer.type %q is not supported, want Sequence or ByteLevel", pre.Type)
	case len(pre.Steps) != 2 || pre.Steps[0].Type != "Split" || pre.Steps[1].Type != "ByteLevel":
		p.addf("pre_tokenizer.pretokenizers are not supported, want Split then ByteLevel")
	default:
		t.setSteps(p, &pre.Steps[0], &pre.Steps[1])
	}
}

func (t *Tokenizer) setSteps(p *problems, split, level *step) {
	const at = "pre_tokenizer.pretokenizers"
	if split.Behavior != "Isolated" {
		p.addf("%s[0].behavior %q is not supported, want Isolated", at, split.Behavior)
	}
	if isType(split.Invert, false) {
		p.addf("%s[0].invert true is not supported", at)
	}
	if isType(level.AddPrefixSpace, true) {
		p.addf("%s[1].add_prefix_space true is not supported", at)
	}
	if isType(level.UseRegex, true) {
		p.addf("%s[1].use_regex true is not supported after a Split", at)
	}
	if split.Pattern == nil || split.Pattern.Regex == "" {
		p.addf("%s[0].pattern has no Regex", at)
		return
	}
	t.regex, t.split = split.Pattern.Regex, newSplitter(split.Pattern.Regex)
	if t.split == nil {
		p.addf("%s[0].pattern.Regex %q is not supported, want that of Qwen2, Llama 3, GPT-2 or %s", at, t.regex, digitRegex)
	}
}

func isNull(m json.RawMessage) bool { return len(m) == 0 || string(m) == "null" }

// isType returns the value of a field, missing where the file does not have it.
func isType(b *bool, missing bool) bool {
	if b == nil {
		return missing
	}
	return *b
}
