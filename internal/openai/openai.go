// Package openai owns the HTTP API of OpenAI, in the form that clients of vLLM know,
// over a policy engine: it reads requests, renders chats, samples, cuts at stop strings,
// finds tool calls and writes answers, whole or as they come. It knows no network and no
// device, and it runs no tool.
//
// Invariant: the answer to a request with a seed depends on the model and the request
// alone: not on the stream, on the other choices, or on what else the engine does. A
// parameter that cannot be honoured is refused by its name, never ignored in silence.
package openai

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/inference"
)

// Model is what a Server serves.
type Model struct {
	// Name is what requests call it.
	Name   string
	Engine inference.Engine
	// Tokenizer and Template are the model's own. Without a Template there are no chats.
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	// Stop are the tokens that end a turn. They do not appear in texts.
	Stop []int32
	// Temperature is the temperature of requests that name none.
	Temperature float32
	Created     time.Time
	// Weights is the digest of what the model is made of; "" is not told.
	Weights string
}

// Limits bound one request. Zero fields have the defaults.
type Limits struct {
	BodyBytes int64 // 8 MiB
	Prompts   int   // of one completion request; 64
	Choices   int   // n; 64
	StopTexts int   // 16
	StopBytes int   // of one stop string; 1,024
}

// Server answers requests.
type Server struct {
	model  Model
	limits Limits
	meter  *meter
	mux    *http.ServeMux
	seed   func() uint64 // of a request without a seed
	// opening is the beginning of a turn that the template's prompt gives; "" for none.
	opening string
	running running
}

// New returns a Server that counts in registry.
func New(m Model, l Limits, registry prometheus.Registerer) (*Server, error) {
	if m.Name == "" || m.Engine == nil || m.Tokenizer == nil {
		return nil, errors.New("openai: a model needs a name, an engine and a tokenizer")
	}
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.Prompts, 64)
	set(&l.Choices, 64)
	set(&l.StopTexts, 16)
	set(&l.StopBytes, 1024)
	if l.BodyBytes == 0 {
		l.BodyBytes = 8 << 20
	}
	s := &Server{model: m, limits: l, meter: newMeter(registry, m.Name), mux: http.NewServeMux(), seed: randomSeed}
	if m.Template != nil {
		s.opening = m.Template.Opening(nil)
	}
	s.meter.watch(registry, m)
	s.routes()
	return s, nil
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /v1/models", s.listModels)
	s.mux.HandleFunc("GET /v1/models/{name...}", s.showModel)
	s.mux.HandleFunc("POST /v1/completions", s.complete)
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("POST /inference/v1/generate", s.generate)
	s.mux.HandleFunc("POST /abort_requests", s.running.abort(s.limits))
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /detokenize", s.detokenize)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, &apiError{status: http.StatusNotFound, Message: r.Method + " " + r.URL.Path + ": there is no such request"})
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// randomSeed returns a seed for a request without one.
func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// modelCard describes the model as /v1/models does.
type modelCard struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
	// Weights tells models of one name apart. OpenAI's form has no such field.
	Weights string `json:"weights,omitempty"`
}

func (m Model) card() modelCard {
	return modelCard{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "temper", MaxModelLen: m.Engine.MaxContext(), Weights: m.Weights}
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelCard{s.model.card()}})
}

func (s *Server) showModel(w http.ResponseWriter, r *http.Request) {
	if err := s.model.checkModel(r.PathValue("name")); err != nil {
		write(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s.model.card())
}

// checkModel refuses the name of another model. An empty name means the served model.
func (m Model) checkModel(name string) *apiError {
	if name == "" || name == m.Name {
		return nil
	}
	return &apiError{
		status: http.StatusNotFound, Type: typeNotFound, Param: "model", Code: "model_not_found",
		Message: "the model " + quoted(name) + " does not exist; this server has " + quoted(m.Name),
	}
}
