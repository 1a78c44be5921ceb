package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// processor is the supported part of a post_processor.
type processor struct {
	Type          string                 `json:"type"`
	Processors    []json.RawMessage      `json:"processors"`
	Single        []templatePiece        `json:"single"`
	SpecialTokens map[string]templateIDs `json:"special_tokens"`
}

type templatePiece struct {
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
}

type templateIDs struct {
	IDs []int32 `json:"ids"`
}

// setPostProcessor accepts ByteLevel, which only moves offsets, and one
// TemplateProcessing, of which it keeps the part for one text.
func (t *Tokenizer) setPostProcessor(p *problems, f *file) {
	if isNull(f.PostProcessor) {
		return
	}
	t.post = f.PostProcessor
	templates := 0
	t.process(p, "post_processor", f.PostProcessor, &templates)
	if templates > 1 {
		p.addf("post_processor has %d TemplateProcessing, want at most 1", templates)
	}
}

func (t *Tokenizer) process(p *problems, key string, raw json.RawMessage, templates *int) {
	var c processor
	if err := json.Unmarshal(raw, &c); err != nil {
		p.addf("%s: %v", key, err)
		return
	}
	switch c.Type {
	case "ByteLevel":
	case "TemplateProcessing":
		*templates++
		t.setTemplate(p, key, &c)
	case "Sequence":
		for i, sub := range c.Processors {
			t.process(p, fmt.Sprintf("%s.processors[%d]", key, i), sub, templates)
		}
	default:
		p.addf("%s.type %q is not supported, want ByteLevel, TemplateProcessing or a Sequence of them", key, c.Type)
	}
}

func (t *Tokenizer) setTemplate(p *problems, key string, c *processor) {
	t.before, t.after = nil, nil
	texts := 0
	for i, piece := range c.Single {
		at := fmt.Sprintf("%s.single[%d]", key, i)
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			texts++
		case piece.SpecialToken != nil:
			ids, ok := c.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				p.addf("%s: %q is not in %s.special_tokens", at, piece.SpecialToken.ID, key)
			}
			if texts == 0 {
				t.before = append(t.before, ids.IDs...)
			} else {
				t.after = append(t.after, ids.IDs...)
			}
		default:
			p.addf("%s is not supported, want SpecialToken or Sequence A", at)
		}
	}
	if texts != 1 {
		p.addf("%s.single has Sequence A %d times, want 1", key, texts)
	}
}

// checkTemplate refuses a template with the ids of tokens that do not exist.
func (t *Tokenizer) checkTemplate() error {
	for _, id := range slices.Concat(t.before, t.after) {
		if id < 0 || int(id) >= len(t.content) {
			return fmt.Errorf("post_processor: no token has id %d", id)
		}
	}
	return nil
}
