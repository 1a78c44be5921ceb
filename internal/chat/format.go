// Package chat owns how a conversation becomes tokens: the ChatML template,
// the hermes tool-call format, the text of tool responses, and the append-only
// Transcript that training dialogues and rollouts share. It does not generate,
// run tools or score.
//
// Invariant: tokens are only ever appended; what a policy sampled is never
// decoded and encoded again, and text of users and tools never becomes a
// control token.
package chat

import (
	"fmt"
	"strings"

	"temper/internal/tokenizer"
)

// Special tokens of the template.
const (
	TokenStart         = "<|im_start|>"
	TokenEnd           = "<|im_end|>"
	TokenPad           = "<|endoftext|>"
	TokenToolCall      = "<tool_call>"
	TokenToolCallEnd   = "</tool_call>"
	TokenToolResult    = "<tool_response>"
	TokenToolResultEnd = "</tool_response>"
	TokenAnswer        = "<answer>"
	TokenAnswerEnd     = "</answer>"
	TokenReason        = "<reason>"
	TokenReasonEnd     = "</reason>"
)

// The one tool of a policy.
const (
	ToolName     = "python"
	ToolArgCode  = "code"  // required string
	ToolArgInput = "input" // optional string, the program's standard input
)

// Specials lists the special tokens in the order of their ids.
func Specials() []string {
	return []string{
		TokenPad, TokenStart, TokenEnd, TokenToolCall, TokenToolCallEnd, TokenToolResult,
		TokenToolResultEnd, TokenAnswer, TokenAnswerEnd, TokenReason, TokenReasonEnd,
	}
}

// Config is the part of the template that a run may choose.
type Config struct {
	// SystemPrompt is trusted text of the operator; "" for none.
	SystemPrompt string
	// ToolsInPrompt adds the signature of the tool to the system message.
	ToolsInPrompt bool
}

// Format renders with one tokenizer. It is safe for concurrent use.
type Format struct {
	tok           *tokenizer.Tokenizer
	system        string
	toolsInPrompt bool
	end, pad      int32
	call, callEnd int32
}

// required are the specials without which no dialogue can be told from text. The
// others may be plain text, as they are to a checkpoint's own tokenizer.
func required() []string { return Specials()[:7] }

// New returns the Format of cfg over a tokenizer that has the special tokens of
// turns, calls and results.
func New(tok *tokenizer.Tokenizer, cfg Config) (*Format, error) {
	for _, s := range required() {
		if _, ok := tok.Special(s); !ok {
			return nil, fmt.Errorf("tokenizer lacks special token %s", s)
		}
	}
	f := &Format{tok: tok, system: cfg.SystemPrompt, toolsInPrompt: cfg.ToolsInPrompt}
	f.end, _ = tok.Special(TokenEnd)
	f.pad, _ = tok.Special(TokenPad)
	f.call, _ = tok.Special(TokenToolCall)
	f.callEnd, _ = tok.Special(TokenToolCallEnd)
	return f, nil
}

// Stop lists the tokens that end a turn.
func (f *Format) Stop() []int32 { return []int32{f.end} }

// Pad is the id that fills unused places of a tensor.
func (f *Format) Pad() int32 { return f.pad }

// Tokenizer returns the tokenizer of the format.
func (f *Format) Tokenizer() *tokenizer.Tokenizer { return f.tok }

// Begin starts a transcript with the prompt for one user message: the system
// message where configured, the user turn, and the prefix of the assistant turn.
func (f *Format) Begin(user string) *Transcript {
	return f.begin(f.system, user)
}

func (f *Format) begin(system, user string) *Transcript {
	var b builder
	if f.toolsInPrompt {
		system = strings.TrimPrefix(system+"\n\n"+toolsBlock(), "\n\n")
	}
	if system != "" {
		b.trusted(TokenStart + "system\n" + system + TokenEnd + "\n")
	}
	b.trusted(TokenStart + "user\n").plain(user).trusted(TokenEnd + "\n" + TokenStart + "assistant\n")
	tokens := b.encode(f.tok)
	return &Transcript{
		format:       f,
		tokens:       tokens,
		mask:         make([]bool, len(tokens)),
		logprobs:     make([]float32, len(tokens)),
		promptTokens: len(tokens),
	}
}

// toolsBlock tells the policy of its tool.
func toolsBlock() string {
	return `# Tools

You can call the function described within <tools></tools>:
<tools>
{"name": "python", "description": "Run a Python program and return what it prints, or the error that ended it.", "parameters": {"type": "object", "properties": {"code": {"type": "string", "description": "the program"}, "input": {"type": "string", "description": "its standard input"}}, "required": ["code"]}}
</tools>

Write each call as a JSON object within tags:
<tool_call>
{"name": "python", "arguments": {"code": "print(1 + 1)"}}
</tool_call>`
}

// builder joins trusted text, in which special tokens count, and plain text, in
// which they do not. Neighbouring text is encoded together, so that the tokens
// are those of the whole rendering.
type builder struct {
	parts []part
}

type part struct {
	text    string
	trusted bool
}

func (b *builder) trusted(text string) *builder {
	b.parts = append(b.parts, part{text, true})
	return b
}

func (b *builder) plain(text string) *builder {
	b.parts = append(b.parts, part{text, false})
	return b
}

// encode cuts the text at the special tokens of its trusted parts and encodes
// what is between them as plain text.
func (b *builder) encode(tok *tokenizer.Tokenizer) []int32 {
	var ids []int32
	var pending strings.Builder
	flush := func() {
		ids = append(ids, tok.Encode(pending.String())...)
		pending.Reset()
	}
	for _, p := range b.parts {
		if !p.trusted {
			pending.WriteString(p.text)
			continue
		}
		for text, id := range tok.Segments(p.text) {
			pending.WriteString(text)
			if id >= 0 {
				flush()
				ids = append(ids, id)
			}
		}
	}
	flush()
	return ids
}
