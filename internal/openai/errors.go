package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"temper/internal/inference"
)

// Types of errors, as OpenAI's clients tell them apart.
const (
	typeInvalid  = "invalid_request_error"
	typeNotFound = "not_found_error"
	typeBusy     = "rate_limit_error"
	typeServer   = "server_error"
)

// apiError is an error as clients of OpenAI read it.
type apiError struct {
	status  int
	Message string
	Type    string
	// Param is the parameter that is wrong, "" for none.
	Param string
	Code  string
}

// Error implements error.
func (e *apiError) Error() string { return e.Message }

// MarshalJSON writes null for what is empty, as OpenAI does.
func (e *apiError) MarshalJSON() ([]byte, error) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	kind := e.Type
	if kind == "" {
		kind = typeInvalid
	}
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, kind, orNull(e.Param), orNull(e.Code)})
}

// invalid refuses a parameter of a request.
func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, Type: typeInvalid, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// tooLong refuses a request that the context cannot hold.
func tooLong(param, format string, args ...any) *apiError {
	e := invalid(param, format, args...)
	e.Code = "context_length_exceeded"
	return e
}

// asAPIError makes an error of the engine one for the client.
func asAPIError(err error) *apiError {
	var own *apiError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, inference.ErrOverloaded):
		return &apiError{status: http.StatusTooManyRequests, Type: typeBusy, Code: "overloaded", Message: "the engine has no room for another request; try again"}
	case errors.Is(err, inference.ErrStaleVersion):
		return &apiError{status: http.StatusServiceUnavailable, Type: typeServer, Code: "model_replaced", Message: "the model was replaced while it answered; try again"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: http.StatusServiceUnavailable, Type: typeServer, Code: "cancelled", Message: "the request was ended"}
	}
	return &apiError{status: http.StatusInternalServerError, Type: typeServer, Code: "engine", Message: "the engine failed: " + err.Error()}
}

// write answers with an error.
func write(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, e.status, map[string]*apiError{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller has gone when this fails
}

// quoted shows a text of the client's, shortened.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.Quote(s)
}
