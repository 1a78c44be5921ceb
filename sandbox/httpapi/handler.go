package httpapi

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// Config configures a handler.
type Config struct {
	// Token, when set, is the bearer token that every call must carry.
	Token string
	// Status returns the answer to GET /v1/status; nil answers an empty object.
	Status func() any
	// Load returns the load that streams announce at once, every second, and when Draining
	// changes. A stream of a draining server ends when no call is in flight on
	// it. Nil means that there are no slots.
	Load func() Load
	// CloseSession ends the session of that name in run and reports whether there
	// was one; nil means that the server has no sessions.
	CloseSession func(run, name string) bool
	// Window is how long the server keeps the answer for a call ID; 5 minutes when zero. It is
	// shorter when the server holds more than 262,144 answers, or their share of Budget.
	Window time.Duration
	// Budget bounds the bytes held for callers; budget.New(0) when nil.
	Budget *budget.Budget
	// Patience is how long 64 KiB of a body may take to arrive. The whole body may take
	// twelve times as long. 10 s when zero.
	Patience time.Duration
	// Logger receives failures to write a response; nil discards.
	Logger *slog.Logger
}

// handler serves one executor.
type handler struct {
	cfg    Config
	exec   sandbox.Executor
	window *window
	bounds bounds
}

// NewHandler returns the API of a server that executes calls with exec.
func NewHandler(exec sandbox.Executor, cfg Config) http.Handler {
	return newHandler(exec, cfg).routes()
}

func newHandler(exec sandbox.Executor, cfg Config) *handler {
	if cfg.Window <= 0 {
		cfg.Window = 5 * time.Minute
	}
	if cfg.Status == nil {
		cfg.Status = func() any { return struct{}{} }
	}
	if cfg.Load == nil {
		cfg.Load = func() Load { return Load{} }
	}
	if cfg.CloseSession == nil {
		cfg.CloseSession = func(string, string) bool { return false }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Budget == nil {
		cfg.Budget = budget.New(0)
	}
	if cfg.Patience <= 0 {
		cfg.Patience = budget.Patience
	}
	return &handler{cfg: cfg, exec: exec, window: newWindow(cfg.Window, int(cfg.Budget.Repeats)), bounds: defaultBounds(cfg.Budget)}
}

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathExecute, h.guard(h.execute))
	mux.HandleFunc("POST "+PathBatch, h.guard(h.batch))
	mux.HandleFunc("POST "+PathStream, h.guard(h.stream))
	mux.HandleFunc("DELETE "+PathSessions+"{name}", h.guard(h.closeSession))
	mux.HandleFunc("GET "+PathStatus, h.guard(h.status))
	mux.HandleFunc("GET "+PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		h.write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return mux
}

// guard refuses callers without the token.
func (h *handler) guard(next http.HandlerFunc) http.HandlerFunc {
	want := []byte("Bearer " + h.cfg.Token)
	return func(w http.ResponseWriter, r *http.Request) {
		got := []byte(r.Header.Get("Authorization"))
		if h.cfg.Token != "" && subtle.ConstantTimeCompare(got, want) != 1 {
			h.fail(w, &Failure{Code: CodeUnauthorized, Message: "missing or wrong bearer token"})
			return
		}
		next(w, r)
	}
}

func (h *handler) execute(w http.ResponseWriter, r *http.Request) {
	data, done, f := h.readBody(w, r, maxCallBody)
	defer done()
	if f != nil {
		h.fail(w, f)
		return
	}
	var req sandbox.Request
	if err := unmarshal(data, &req); err != nil {
		h.fail(w, invalid("body: %s", reason(err)))
		return
	}
	ctx, cancel, f := withDeadline(r)
	if f != nil {
		h.fail(w, f)
		return
	}
	defer cancel()
	caller := callerOf(r)
	answer := h.answer(ctx, &req, caller) //nolint:contextcheck // withDeadline derives ctx from the request
	if answer.Error != nil {
		h.fail(w, answer.Error)
		return
	}
	h.sendResult(w, answer.Result, caller, packs(r))
}

// sendResult writes the one Result of a response.
func (h *handler) sendResult(w http.ResponseWriter, res *sandbox.Result, caller string, packed bool) {
	enc := &encoder{packed: packed}
	size := int64(sizeOf(res))
	if size <= smallAnswer {
		enc.result(res)
		h.send(w, http.StatusOK, enc.buf)
		return
	}
	h.cfg.Budget.Answers.Add(caller, size)
	defer h.cfg.Budget.Answers.Release(caller, size)
	to := budget.NewResponse(w, h.bounds.stall)
	enc.to = to
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusOK)
	enc.result(res)
	enc.buf = append(enc.buf, '\n')
	h.logWriteError(errors.Join(enc.flush(), to.End()))
}

// logWriteError logs a response that could not be written.
func (h *handler) logWriteError(err error) {
	if err != nil {
		h.cfg.Logger.Debug("write response", "err", err)
	}
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, h.cfg.Status())
}

func (h *handler) closeSession(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query["run"]) > 1 || len(query) > 1 || len(query) == 1 && query["run"] == nil {
		h.fail(w, invalid("query: run, once, is all that it may hold"))
		return
	}
	if !h.cfg.CloseSession(query.Get("run"), r.PathValue("name")) {
		h.fail(w, &Failure{Code: CodeNotFound, Message: "there is no such session"})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answer runs one call, or returns the earlier answer to its ID.
func (h *handler) answer(ctx context.Context, req *sandbox.Request, caller string) Answer {
	leave, f := h.enter(ctx, req, caller, h.bounds.patient)
	if f != nil {
		return Answer{Error: f}
	}
	defer leave()
	return h.finish(ctx, req)
}

// enter acquires the room for the answer to a call before its program runs, so that the
// answer is never lost. It waits for at most patient.
func (h *handler) enter(ctx context.Context, req *sandbox.Request, caller string, patient time.Duration) (leave func(), _ *Failure) {
	if len(req.ID) > maxID {
		return nil, invalid("id of %d bytes is above the limit of %d", len(req.ID), maxID)
	}
	room := budget.OutputRoom(req.Limits.Output)
	if f := h.makeRoom(ctx, caller, room, patient); f != nil {
		return nil, f
	}
	return func() {
		if room > 0 {
			h.cfg.Budget.Answers.Release(caller, room)
		}
	}, nil
}

// finish answers a call after enter.
func (h *handler) finish(ctx context.Context, req *sandbox.Request) Answer {
	res, err := h.window.do(ctx, req, func() (*sandbox.Result, error) { return h.run(ctx, req) })
	if err != nil {
		return Answer{Error: failure(ctx, err)}
	}
	return Answer{Result: res}
}

// run executes one call. No other frame here holds a Request or a Result by value: a call
// waits in all of them, and a gateway has many waiting calls.
func (h *handler) run(ctx context.Context, req *sandbox.Request) (_ *sandbox.Result, err error) {
	res := new(sandbox.Result)
	*res, err = h.exec.Execute(ctx, *req)
	return res, err
}

// httpStatus returns the HTTP status of a Failure.
func (f *Failure) httpStatus() int {
	switch f.Code {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeSlow:
		return http.StatusRequestTimeout
	case CodeConflict:
		return http.StatusConflict
	case CodeNotFound:
		return http.StatusNotFound
	case CodeSessionLost:
		return http.StatusGone
	case CodeUnauthorized:
		return http.StatusUnauthorized
	case CodeOverloaded:
		return http.StatusTooManyRequests
	case CodeDeadline, CodeCancelled:
		return http.StatusGatewayTimeout
	default:
		return http.StatusServiceUnavailable
	}
}

func (h *handler) fail(w http.ResponseWriter, f *Failure) {
	if f.Code == CodeOverloaded {
		seconds := max(1, (f.RetryAfterMS+999)/1000)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	h.write(w, f.httpStatus(), failureBody{Error: *f})
}

func (h *handler) write(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only Config.Status can cause this
		h.cfg.Logger.Error("encode response", "err", err)
		code, body = http.StatusInternalServerError, []byte(`{}`)
	}
	h.send(w, code, body)
}

// send writes an encoded response.
func (h *handler) send(w http.ResponseWriter, code int, body []byte) {
	body = append(body, '\n')
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	to := budget.NewResponse(w, h.bounds.stall)
	_, err := to.Write(body)
	h.logWriteError(errors.Join(err, to.End()))
}
