package proc

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// answer is the body of both paths.
type answer struct {
	Role string `json:"role"`
	OK   bool   `json:"ok"`
	// Problems are one line each.
	Problems []string `json:"problems,omitempty"`
	UpS      int64    `json:"up_s"`
}

// Handler serves PathAlive and PathReady, with 200 for yes and 503 for no, and
// more handlers by pattern of http.ServeMux.
func (s *Health) Handler(more map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathAlive, func(w http.ResponseWriter, _ *http.Request) { s.answer(w, nil) })
	mux.Handle("GET "+PathReady, s.ReadyHandler())
	for pattern, h := range more {
		mux.Handle(pattern, h)
	}
	return mux
}

// ReadyHandler serves PathReady alone, for a process that has its own listener.
func (s *Health) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, s.Ready(r.Context())) })
}

func (s *Health) answer(w http.ResponseWriter, err error) {
	a := answer{Role: s.name, OK: err == nil, UpS: int64(time.Since(s.started).Seconds())}
	code := http.StatusOK
	if err != nil {
		a.Problems, code = strings.Split(err.Error(), "\n"), http.StatusServiceUnavailable
	}
	body, err := json.Marshal(a)
	if err != nil { // texts and a number always encode
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the caller has gone when this fails
}

// problem is the error that a body tells of.
func problem(status string, body []byte) error {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || len(a.Problems) == 0 {
		return errors.New("answers " + status)
	}
	return errors.New(strings.Join(a.Problems, "; "))
}
