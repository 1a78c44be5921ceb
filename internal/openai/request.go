package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"temper/internal/inference"
)

// sampling are the parameters that chats and completions share. Pointers tell what was
// left out from zero.
type sampling struct {
	Model         string          `json:"model"`
	N             *int            `json:"n"`
	MaxTokens     *int            `json:"max_tokens"`
	Temperature   *float64        `json:"temperature"`
	Seed          *int64          `json:"seed"`
	Stop          json.RawMessage `json:"stop"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ReturnTokenIDs bool `json:"return_token_ids"`
	// User and Metadata are for the caller's own books.
	User     string          `json:"user"`
	Metadata json.RawMessage `json:"metadata"`
	Store    *bool           `json:"store"`

	TopP *float64 `json:"top_p"`
	TopK *int     `json:"top_k"` // -1 is vLLM's word for all
	MinP *float64 `json:"min_p"`

	// These are honoured for the values that change nothing.
	FrequencyPenalty  *float64        `json:"frequency_penalty"`
	PresencePenalty   *float64        `json:"presence_penalty"`
	RepetitionPenalty *float64        `json:"repetition_penalty"`
	LogitBias         json.RawMessage `json:"logit_bias"`

	stops   []string           // read from Stop
	sampler *inference.Sampler // read from TopP, TopK and MinP; nil keeps all tokens
	top     int                // likeliest tokens to report at each position
}

// maxTemperature is the highest temperature that OpenAI's servers accept.
const maxTemperature = 2

// check fills in the defaults and refuses what cannot be done.
func (p *sampling) check(l Limits) *apiError {
	one := 1
	if p.N == nil {
		p.N = &one
	}
	switch {
	case *p.N < 1 || *p.N > l.Choices:
		return invalid("n", "%d, want 1 to %d", *p.N, l.Choices)
	case p.MaxTokens != nil && *p.MaxTokens < 1:
		return invalid("max_tokens", "%d, want at least 1", *p.MaxTokens)
	case p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature <= maxTemperature):
		return invalid("temperature", "%v, want 0 to %d", *p.Temperature, maxTemperature)
	case p.StreamOptions != nil && !p.Stream:
		return invalid("stream_options", "only with stream: true")
	}
	if err := p.checkDistribution(); err != nil {
		return err
	}
	if err := p.readSampler(); err != nil {
		return err
	}
	return p.readStop(l)
}

// readSampler reads which tokens are kept.
func (p *sampling) readSampler() *apiError {
	switch {
	case p.TopP != nil && !(*p.TopP > 0 && *p.TopP <= 1):
		return invalid("top_p", "%v, want more than 0 and at most 1", *p.TopP)
	case p.TopK != nil && *p.TopK < -1:
		return invalid("top_k", "%d, want at least 1, or 0 or -1 for all", *p.TopK)
	case p.MinP != nil && !(*p.MinP >= 0 && *p.MinP <= 1):
		return invalid("min_p", "%v, want 0 to 1", *p.MinP)
	}
	var by inference.Sampler
	if p.TopP != nil && *p.TopP < 1 {
		by.TopP = *p.TopP
	}
	if p.TopK != nil {
		by.TopK = max(*p.TopK, 0)
	}
	if p.MinP != nil {
		by.MinP = *p.MinP
	}
	if by != (inference.Sampler{}) {
		p.sampler = &by
	}
	return nil
}

// checkDistribution refuses what would change the scores of tokens.
func (p *sampling) checkDistribution() *apiError {
	const why = "this engine does not change scores"
	number := func(name string, v *float64, neutral float64) *apiError {
		if v != nil && *v != neutral {
			return invalid(name, "%v, want %v: %s", *v, neutral, why)
		}
		return nil
	}
	for _, err := range []*apiError{
		number("frequency_penalty", p.FrequencyPenalty, 0), number("presence_penalty", p.PresencePenalty, 0), number("repetition_penalty", p.RepetitionPenalty, 1),
	} {
		if err != nil {
			return err
		}
	}
	if text := string(bytes.TrimSpace(p.LogitBias)); text != "" && text != "null" && text != "{}" {
		return invalid("logit_bias", "%s", why)
	}
	return nil
}

// readStop reads one string, or a list.
func (p *sampling) readStop(l Limits) *apiError {
	if len(p.Stop) == 0 || string(p.Stop) == "null" {
		return nil
	}
	if one, ok := as[string](p.Stop); ok {
		p.stops = []string{one}
	} else if p.stops, ok = as[[]string](p.Stop); !ok {
		return invalid("stop", "want a string or a list of strings")
	}
	if len(p.stops) > l.StopTexts {
		return invalid("stop", "%d strings, want at most %d", len(p.stops), l.StopTexts)
	}
	for _, s := range p.stops {
		if s == "" || len(s) > l.StopBytes {
			return invalid("stop", "a string of %d bytes, want 1 to %d", len(s), l.StopBytes)
		}
	}
	return nil
}

// temperature is the one to sample at.
func (p *sampling) temperature(m Model) float32 {
	if p.Temperature == nil {
		return m.Temperature
	}
	return float32(*p.Temperature)
}

// read decodes the body into v and names the member that does not fit.
func (l Limits) read(w http.ResponseWriter, r *http.Request, v any) *apiError {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, l.BodyBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &apiError{status: http.StatusRequestEntityTooLarge, Message: "the body has more than the limit of " + itoa(l.BodyBytes) + " bytes"}
	}
	if err != nil {
		return &apiError{status: http.StatusBadRequest, Message: "the body cannot be read: " + err.Error()}
	}
	return decode(body, v)
}

// decode reads a JSON object and refuses unknown members.
func decode(body []byte, v any) *apiError {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil && dec.More() {
		err = errors.New("there is more behind the object")
	}
	wrong := (*json.UnmarshalTypeError)(nil)
	if errors.As(err, &wrong) && wrong.Field != "" {
		return invalid(leaf(wrong.Field), "a %s, want %s", wrong.Value, jsonKind(wrong.Type.Kind().String()))
	}
	if err == nil {
		return nil
	}
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		name = strings.Trim(name, `"`)
		return invalid(name, "this server does not know the parameter")
	}
	why := "it is a list or a single value"
	if wrong == nil {
		why = strings.TrimPrefix(err.Error(), "json: ")
	}
	return &apiError{status: http.StatusBadRequest, Message: "the body is no JSON object: " + why}
}

// leaf is a member's path without the structs that it is embedded in.
func leaf(path string) string { return strings.TrimPrefix(path, "sampling.") }

// jsonKind names a kind of Go as JSON does.
func jsonKind(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "a list"
	case kind == "string":
		return "a string"
	}
	return "an object"
}

// checkIDs refuses token ids that the model does not have.
func (m Model) checkIDs(param string, ids []int32) *apiError {
	size := int32(min(m.Tokenizer.VocabSize(), math.MaxInt32))
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || id >= size }); i >= 0 {
		return invalid(param, "token %d at %d is outside the vocabulary of %d", ids[i], i, size)
	}
	return nil
}
