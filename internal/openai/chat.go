package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	sampling
	Messages            json.RawMessage `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	ChatTemplateKwargs  json.RawMessage `json:"chat_template_kwargs"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         *int            `json:"top_logprobs"`
	ResponseFormat      json.RawMessage `json:"response_format"`
}

// chatMessage is what the model says.
type chatMessage struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// chatChoice is a choice of an answer, or what is new of it.
type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatDelta    `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// prepared is a chat that can be sampled.
type prepared struct {
	chatRequest
	prompt []int32
	tools  *chat.Toolset // nil where the model sees none
	forced string        // the beginning of a call, which the model continues
}

// prepare checks a chat and renders its prompt.
func (s *Server) prepare(r *chatRequest) (prepared, *apiError) {
	p := prepared{chatRequest: *r}
	if s.model.Template == nil {
		return p, &apiError{status: http.StatusBadRequest, Code: "no_chat_template", Message: "the model has no chat template; use /v1/completions"}
	}
	if r.MaxCompletionTokens != nil {
		p.MaxTokens = r.MaxCompletionTokens
	}
	if err := p.check(s.limits); err != nil {
		return p, err
	}
	if r.TopLogprobs != nil {
		if err := p.askTop("top_logprobs", *r.TopLogprobs); err != nil {
			return p, err
		}
		if p.top > 0 && !r.Logprobs {
			return p, invalid("top_logprobs", "%d without logprobs: want logprobs to be true", p.top)
		}
	}
	if !neutralFormat(r.ResponseFormat) {
		return p, invalid("response_format", "this server answers with text only")
	}
	req, err := conversation(s.opening, r.Messages, r.Tools, r.ChatTemplateKwargs)
	if err != nil {
		return p, err
	}
	shown, forced, err := toolChoice(r.ToolChoice, req.Tools)
	if err != nil {
		return p, err
	}
	if shown {
		var toolsErr error
		if p.tools, toolsErr = chat.NewToolset(req.Tools); toolsErr != nil {
			return p, invalid("tools", "%v", toolsErr)
		}
	} else {
		req.Tools = nil
	}
	req.Now = time.Now()
	ids, renderErr := s.model.Template.Tokens(s.model.Tokenizer, req)
	if renderErr != nil {
		return p, invalid("messages", "%v", renderErr)
	}
	p.forced = forced
	p.prompt = append(ids, s.model.Tokenizer.EncodeSpecial(forced)...)
	return p, nil
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var body chatRequest
	err := s.limits.read(w, r, &body)
	if err == nil {
		err = s.model.checkModel(body.Model)
	}
	var p prepared
	if err == nil {
		p, err = s.prepare(&body)
	}
	if err != nil {
		write(w, err)
		return
	}
	a := s.newAnswer("chatcmpl", "chat.completion", &p.sampling)
	draws := make([]draw, *p.N)
	for i := range draws {
		if draws[i], err = s.plan("messages", p.prompt, &p.sampling, a.seed, i); err != nil {
			write(w, err)
			return
		}
	}
	if p.Stream {
		s.streamChat(r.Context(), w, a, p, draws)
		return
	}
	outs, sampleErr := s.sampleAll(r.Context(), draws)
	if sampleErr != nil {
		write(w, asAPIError(sampleErr))
		return
	}
	choices := make([]chatChoice, len(outs))
	for i, out := range outs {
		choices[i] = p.choice(s.model.Tokenizer, i, a.id, out)
	}
	a.add(draws[:1], outs)
	writeJSON(w, http.StatusOK, a.with(choices))
}

// choice is a whole choice.
func (p *prepared) choice(t *tokenizer.Tokenizer, i int, id string, out outcome) chatChoice {
	content, calls := out.Text, []toolCall(nil)
	if p.tools != nil {
		content, calls = findCalls(p.tools, p.forced+out.Text, callID(id, i), false)
	}
	m := &chatMessage{Role: chat.RoleAssistant, Content: &content, ToolCalls: calls}
	finish := out.finish
	if len(calls) > 0 {
		if finish == finishStop {
			finish = finishTools
		}
		if strings.TrimSpace(content) == "" {
			m.Content = nil
		}
	}
	c := chatChoice{Index: i, Message: m, FinishReason: &finish}
	if p.Logprobs {
		c.Logprobs = newChatLogprobs(t, out.piece)
	}
	if p.ReturnTokenIDs {
		c.TokenIDs = out.Tokens
	}
	return c
}

// chatPart sends one choice while it is sampled. From the beginning of a call on, the text
// is kept until the end, when the calls are known.
type chatPart struct {
	s     *Server
	st    *stream
	p     *prepared
	index int
	kept  strings.Builder // text that may be part of a call
	begun bool
}

// emit sends what is new.
func (c *chatPart) emit(pc piece) error {
	text := pc.Text
	if c.p.tools != nil {
		c.kept.WriteString(text)
		text = beforeCall(&c.kept)
	}
	if text == "" && c.begun && !c.p.Logprobs && !c.p.ReturnTokenIDs {
		return nil // the token that ends a turn has no text
	}
	choice := chatChoice{Index: c.index, Delta: &chatDelta{Content: text}}
	if !c.begun {
		choice.Delta.Role, c.begun = chat.RoleAssistant, true
	}
	if c.p.Logprobs && len(pc.Tokens) > 0 {
		choice.Logprobs = newChatLogprobs(c.s.model.Tokenizer, pc)
	}
	if c.p.ReturnTokenIDs {
		choice.TokenIDs = pc.Tokens
	}
	return c.st.send(choice)
}

// end sends the calls and why the choice ended.
func (c *chatPart) end(out outcome) error {
	finish := out.finish
	if rest := c.kept.String(); rest != "" {
		content, calls := findCalls(c.p.tools, rest, callID(c.st.a.id, c.index), true)
		if len(calls) > 0 && finish == finishStop {
			finish = finishTools
		}
		if err := c.st.send(chatChoice{Index: c.index, Delta: &chatDelta{Content: content, ToolCalls: calls}}); err != nil {
			return err
		}
	}
	return c.st.send(chatChoice{Index: c.index, Delta: &chatDelta{}, FinishReason: &finish})
}

// streamChat sends the choices while they are sampled.
func (s *Server) streamChat(ctx context.Context, w http.ResponseWriter, a *answer, p prepared, draws []draw) {
	st := newStream(w, a, "chat.completion.chunk", p.StreamOptions != nil && p.StreamOptions.IncludeUsage)
	outs, err := s.sampleStreams(ctx, draws, func(i int) (func(piece) error, func(outcome) error) {
		c := &chatPart{s: s, st: st, p: &p, index: i}
		c.kept.WriteString(p.forced)
		return c.emit, c.end
	})
	if err != nil {
		st.fail(err)
		return
	}
	a.add(draws[:1], outs)
	st.close()
}

// beforeCall takes the text from kept that cannot be part of a call.
func beforeCall(kept *strings.Builder) string {
	all := kept.String()
	at := strings.Index(all, chat.TokenToolCall)
	if at < 0 {
		at = len(all) - heldBack(all, []string{chat.TokenToolCall})
	}
	kept.Reset()
	kept.WriteString(all[at:])
	return all[:at]
}
