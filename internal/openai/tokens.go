package openai

import (
	"encoding/json"
	"net/http"
)

// tokenizeRequest is the body of POST /tokenize: a prompt, or messages.
type tokenizeRequest struct {
	Model               string          `json:"model"`
	Prompt              *string         `json:"prompt"`
	Messages            json.RawMessage `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	ChatTemplateKwargs  json.RawMessage `json:"chat_template_kwargs"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	AddSpecialTokens    *bool           `json:"add_special_tokens"`
	ReturnTokenStrs     bool            `json:"return_token_strs"`
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var body tokenizeRequest
	err := s.limits.read(w, r, &body)
	if err == nil {
		err = s.model.checkModel(body.Model)
	}
	var ids []int32
	if err == nil {
		ids, err = s.tokensOf(&body)
	}
	if err != nil {
		write(w, err)
		return
	}
	answer := map[string]any{"tokens": ids, "count": len(ids), "max_model_len": s.model.Engine.MaxContext()}
	if body.ReturnTokenStrs {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = tokenText(s.model.Tokenizer, id)
		}
		answer["token_strs"] = texts
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) tokensOf(body *tokenizeRequest) ([]int32, *apiError) {
	if body.Prompt != nil {
		ids := s.model.Tokenizer.EncodeSpecial(*body.Prompt)
		if body.AddSpecialTokens == nil || *body.AddSpecialTokens {
			ids = s.model.Tokenizer.PostProcess(ids)
		}
		return ids, nil
	}
	if s.model.Template == nil {
		return nil, invalid("messages", "the model has no chat template; give a prompt")
	}
	req, err := conversation(s.opening, body.Messages, body.Tools, body.ChatTemplateKwargs)
	if err != nil {
		return nil, err
	}
	req.AddGenerationPrompt = body.AddGenerationPrompt == nil || *body.AddGenerationPrompt
	ids, renderErr := s.model.Template.Tokens(s.model.Tokenizer, req)
	if renderErr != nil {
		return nil, invalid("messages", "%v", renderErr)
	}
	return ids, nil
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	err := s.limits.read(w, r, &body)
	if err == nil {
		err = s.model.checkModel(body.Model)
	}
	if err == nil {
		err = s.model.checkIDs("tokens", body.Tokens)
	}
	if err != nil {
		write(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": s.model.Tokenizer.Text(body.Tokens)})
}
