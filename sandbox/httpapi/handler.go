package httpapi

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"temper/sandbox"
)

// Config says how a handler behaves.
type Config struct {
	// Token, when set, is the bearer token that every call must carry.
	Token string
	// Status is what GET /status answers; nil answers an empty object.
	Status func() any
	// Window is how long a call ID keeps its answer; 5 minutes when zero.
	Window time.Duration
	// Logger receives failures to write a response; nil discards.
	Logger *slog.Logger
}

// handler serves one node.
type handler struct {
	cfg    Config
	exec   sandbox.Executor
	window *window
}

// NewHandler returns the API of a node that executes calls with exec.
func NewHandler(exec sandbox.Executor, cfg Config) http.Handler {
	if cfg.Window <= 0 {
		cfg.Window = 5 * time.Minute
	}
	if cfg.Status == nil {
		cfg.Status = func() any { return struct{}{} }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{cfg: cfg, exec: exec, window: newWindow(cfg.Window)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathExecute, h.guard(h.execute))
	mux.HandleFunc("POST "+PathBatch, h.guard(h.batch))
	mux.HandleFunc("GET "+PathStatus, h.guard(h.status))
	mux.HandleFunc("GET "+PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		h.write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return mux
}

// guard lets only callers with the token in.
func (h *handler) guard(next http.HandlerFunc) http.HandlerFunc {
	want := []byte("Bearer " + h.cfg.Token)
	return func(w http.ResponseWriter, r *http.Request) {
		got := []byte(r.Header.Get("Authorization"))
		if h.cfg.Token != "" && subtle.ConstantTimeCompare(got, want) != 1 {
			h.fail(w, Failure{Code: CodeUnauthorized, Message: "missing or wrong bearer token"})
			return
		}
		next(w, r)
	}
}

func (h *handler) execute(w http.ResponseWriter, r *http.Request) {
	var req sandbox.Request
	if f := decode(w, r, maxCallBody, &req); f != nil {
		h.fail(w, *f)
		return
	}
	ctx, cancel, f := withDeadline(r)
	if f != nil {
		h.fail(w, *f)
		return
	}
	defer cancel()
	answer := h.answer(ctx, req) //nolint:contextcheck // withDeadline derives ctx from the request
	if answer.Error != nil {
		h.fail(w, *answer.Error)
		return
	}
	h.write(w, http.StatusOK, answer.Result)
}

func (h *handler) batch(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // withDeadline derives ctx from the request
	var batch Batch
	if f := decode(w, r, maxBatchBody, &batch); f != nil {
		h.fail(w, *f)
		return
	}
	if n := len(batch.Calls); n > MaxBatch {
		h.fail(w, Failure{CodeTooLarge, fmt.Sprintf("batch of %d calls is above the limit of %d", n, MaxBatch)})
		return
	}
	ctx, cancel, f := withDeadline(r)
	if f != nil {
		h.fail(w, *f)
		return
	}
	defer cancel()
	answers := make([]Answer, len(batch.Calls))
	var calls sync.WaitGroup
	for i, req := range batch.Calls {
		calls.Go(func() { answers[i] = h.answer(ctx, req) })
	}
	calls.Wait()
	h.write(w, http.StatusOK, BatchAnswer{Answers: answers})
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, h.cfg.Status())
}

// maxID bounds the length of a call's name.
const maxID = 256

// answer runs one call, or gives the answer that its ID has already got.
func (h *handler) answer(ctx context.Context, req sandbox.Request) Answer {
	if len(req.ID) > maxID {
		return Answer{Error: &Failure{CodeInvalid, fmt.Sprintf("id of %d bytes is above the limit of %d", len(req.ID), maxID)}}
	}
	res, err := h.window.do(ctx, req.ID, func() (sandbox.Result, error) { return h.exec.Execute(ctx, req) })
	switch {
	case err == nil:
		return Answer{Result: &res}
	case errors.Is(err, sandbox.ErrOverloaded):
		return Answer{Error: &Failure{CodeOverloaded, err.Error()}}
	case ctx.Err() != nil:
		return Answer{Error: &Failure{CodeDeadline, ctx.Err().Error()}}
	default:
		return Answer{Error: &Failure{CodeUnavailable, err.Error()}}
	}
}

// decode reads a JSON body of at most limit bytes into v.
func decode(w http.ResponseWriter, r *http.Request, limit int64, v any) *Failure {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return &Failure{CodeTooLarge, fmt.Sprintf("body is above the limit of %d bytes", large.Limit)}
	default:
		return &Failure{CodeInvalid, "body: " + err.Error()}
	}
}

// withDeadline bounds the call by what the caller said it has left.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc, *Failure) {
	text := r.Header.Get(deadlineHeader)
	if text == "" {
		return r.Context(), func() {}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 48)
	if err != nil || ms < 0 {
		return nil, nil, &Failure{CodeInvalid, fmt.Sprintf("header %s: %q is not a number of milliseconds", deadlineHeader, text)}
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
	return ctx, cancel, nil
}

func (h *handler) fail(w http.ResponseWriter, f Failure) {
	code := http.StatusServiceUnavailable
	switch f.Code {
	case CodeInvalid:
		code = http.StatusBadRequest
	case CodeTooLarge:
		code = http.StatusRequestEntityTooLarge
	case CodeUnauthorized:
		code = http.StatusUnauthorized
	case CodeOverloaded:
		code = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	case CodeDeadline:
		code = http.StatusGatewayTimeout
	case CodeUnavailable:
	}
	h.write(w, code, failureBody{Error: f})
}

func (h *handler) write(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only a Status func of the caller can do this
		h.cfg.Logger.Error("encode response", "err", err)
		code, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(append(body, '\n')); err != nil {
		h.cfg.Logger.Debug("write response", "err", err)
	}
}
