package chat

import (
	"slices"

	"temper/internal/chat/tokenizer"
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

// Specials lists the special tokens in the order of their ids.
func Specials() []string {
	return []string{
		TokenPad, TokenStart, TokenEnd, TokenToolCall, TokenToolCallEnd, TokenToolResult,
		TokenToolResultEnd, TokenAnswer, TokenAnswerEnd, TokenReason, TokenReasonEnd,
	}
}

// Config is the part of the format that a run may choose.
type Config struct {
	// Template writes everything but what a policy samples; nil stands for the
	// small ChatML, which saves context.
	Template *Template
	// Vars are variables of the template, such as enable_thinking. The texts true and
	// false become booleans, whole numbers become integers.
	Vars map[string]string
	// Tools are the names of the built-in tools that the prompt shows; see package builtin.
	// With a template the policy can call no others. Empty means DefaultTools.
	Tools []string
	// Functions are further tools, which the prompt shows after Tools. With some of them
	// an empty Tools means that there are no others.
	Functions []FunctionTool
	// SessionTools are the tools whose calls share one process; the prompt tells the policy.
	SessionTools []string
	// Boxed means that an answer stands in \boxed{} within the answer tags.
	Boxed bool
	// SystemPrompt is trusted text of the operator. Empty means none, or the prompt of the
	// template.
	SystemPrompt string
	// ToolsInPrompt adds the signature of the tool to the small ChatML's prompt.
	ToolsInPrompt bool
}

// Format renders with one tokenizer and reads what a policy says. It is safe for
// concurrent use.
type Format struct {
	tok     *tokenizer.Tokenizer
	dialect dialect
	system  string
	boxed   bool
	// checked reports whether the schemas of some tools bind the calls of dialogues.
	checked bool
	// end is the token that ends a turn. call and callEnd are the tags of a call, -1
	// where they are plain text.
	end, pad, call, callEnd int32
}

// dialect writes the parts of a conversation that no policy samples, and the
// assistant messages of training dialogues.
type dialect interface {
	// prompt returns the system message, the question and the prefix of the assistant turn.
	prompt(system, user string) ([]int32, error)
	// textBetweenTurns returns what follows the end token of an assistant turn: the
	// results of its calls or a further question, and the prefix of the next turn.
	textBetweenTurns(added []Message) ([]int32, error)
	// assistantTurns returns the tokens that a policy would sample for each assistant
	// message of a dialogue, with the end token.
	assistantTurns(d Dialogue) ([][]int32, error)
	// parseCall reads what stands between the tags of a call. parseText reads the text
	// of a whole turn where the tags are not tokens.
	parseCall(body string) Call
	parseText(text string) ParsedTurn
	// adaptMessage rewrites an assistant message of another dialect in this one.
	adaptMessage(m Message) Message
	// source is the dialect as a chat template; system is the run's prompt.
	source(system string) string
}

// New returns the Format of cfg over a tokenizer. The error says why the tokenizer
// or the template cannot be used for rollouts, and what to do about it.
func New(tok *tokenizer.Tokenizer, cfg Config) (*Format, error) {
	f := &Format{tok: tok, system: cfg.SystemPrompt, boxed: cfg.Boxed, checked: len(cfg.Functions) > 0, call: -1, callEnd: -1}
	if id, ok := tok.Special(TokenToolCall); ok {
		f.call = id
	}
	if id, ok := tok.Special(TokenToolCallEnd); ok {
		f.callEnd = id
	}
	if cfg.Template != nil {
		return f, f.useTemplate(cfg)
	}
	return f, f.useChatML(cfg)
}

// NewPlain returns the Format of cfg over a tokenizer of bytes and Specials, for
// what does not depend on the tokenizer that a run will have.
func NewPlain(cfg Config) (*Format, error) {
	tok, err := tokenizer.Train(slices.Values([]string(nil)), 0, Specials())
	if err != nil {
		return nil, err
	}
	return New(tok, cfg)
}

// Stop lists the tokens that end a turn.
func (f *Format) Stop() []int32 { return []int32{f.end} }

// Pad is the id that fills unused places of a tensor.
func (f *Format) Pad() int32 { return f.pad }

// Boxed reports whether an answer stands in \boxed{} within the answer tags, rather
// than directly between them.
func (f *Format) Boxed() bool { return f.boxed }

// Tokenizer returns the tokenizer of the format.
func (f *Format) Tokenizer() *tokenizer.Tokenizer { return f.tok }

// Begin starts a transcript with the prompt for one user message: the system
// message where there is one, the user turn, and the prefix of the assistant turn.
func (f *Format) Begin(user string) (*Transcript, error) {
	return f.begin(f.system, user)
}

func (f *Format) begin(system, user string) (*Transcript, error) {
	tokens, err := f.dialect.prompt(system, user)
	if err != nil {
		return nil, err
	}
	return &Transcript{format: f, tokens: tokens, promptTokens: len(tokens)}, nil
}
