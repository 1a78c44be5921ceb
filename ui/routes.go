package ui

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"temper/internal/blob"
	"temper/internal/fault"
)

// route is one line of the table that makes the mux, the OpenAPI description and the
// types of the page.
type route struct {
	Method, Path, Summary string
	// Query are the parameters behind the question mark.
	Query []param
	// Answer is the type of the JSON answer; nil for another content, which Content names.
	Answer  reflect.Type
	Content string
	// Body is the type of the request's body; nil for none.
	Body reflect.Type
	// Token means that the request needs the token also where reading does not.
	Token bool

	serve func(w http.ResponseWriter, r *request) error
}

// param is a parameter of a query.
type param struct{ Name, Meaning string }

// routes is the table. The description of the API needs no handlers: s may be a zero Server
// then.
func routes(s *Server) []route {
	return []route{
		get("/api/v1/about", "What this dashboard is and may do", nil, s.service.about),
		get("/api/v1/series", "The meaning of every series", nil, s.service.describeSeries),
		get("/api/v1/services", "The processes of the service with what they say of themselves", nil, s.service.showServices),
		get("/api/v1/schedules", "The schedules of re-trainings", nil, s.service.showSchedules),
		get("/api/v1/alerts", "The runs whose watch has a broken rule", nil, s.table.showAlerts),
		get("/api/v1/runs", "All runs of the store", nil, s.table.listRuns),
		get("/api/v1/runs/{run}", "A run: plan, state, summary, evaluations", nil, s.table.showRun),
		get("/api/v1/runs/{run}/config", "The configuration as of a step, key by key", []param{{"step", "the step; the newest configuration without it"}}, s.runs.showConfig),
		get("/api/v1/runs/{run}/series", "Series of a run, one value a step", []param{
			{"keys", "names with commas; all without it"}, {"from", "first step"}, {"to", "last step"},
			{"match", "a regular expression (RE2) that names must match, upper and lower case alike"},
			{"points", "most points: above them a series comes as the lowest and the highest of each bucket"},
		}, s.runs.showSeries),
		get("/api/v1/runs/{run}/timeline", "Everything that happened in a run, on one axis of time", nil, s.runs.showTimeline),
		get("/api/v1/runs/{run}/checkpoints", "The checkpoints of a run and why each stays", nil, s.runs.showCheckpoints),
		get("/api/v1/runs/{run}/evals", "The evaluations of a run", nil, s.evals.showEvals),
		get("/api/v1/runs/{run}/evals/{eval}", "The trajectories of an evaluation, in columns", nil, s.evals.showEval),
		get("/api/v1/runs/{run}/evals/{eval}/{problem}/{k}", "One trajectory of an evaluation", nil, s.evals.showEvalTrajectory),
		get("/api/v1/runs/{run}/find", "The trajectories of all steps that a filter finds", []param{
			{"filter", "conditions with spaces, all of which must hold, such as reward=1 failed_calls>2 fate=dropped"},
		}, s.finder.find),
		get("/api/v1/runs/{run}/problems/{problem}", "What became of a problem in each step that sampled it", nil, s.finder.showProblem),
		get("/api/v1/runs/{run}/steps/{step}", "A step: its record and its groups", nil, s.steps.showStep),
		get("/api/v1/runs/{run}/steps/{step}/trajectories", "The trajectories of a step, in columns", nil, s.steps.showTrajectories),
		get("/api/v1/runs/{run}/steps/{step}/{problem}", "A group: its problem, its rollouts and why each was kept or dropped", nil, s.steps.showGroup),
		get("/api/v1/runs/{run}/steps/{step}/{problem}/{k}", "A trajectory: its turns and calls", nil, s.steps.showTrajectory),
		get("/api/v1/runs/{run}/steps/{step}/{problem}/{k}/tokens", "The tokens of a trajectory", nil, s.steps.showTokens),
		get("/api/v1/runs/{run}/notes", "The tags and the note that people gave a run", nil, s.runs.showNotes),
		put("/api/v1/runs/{run}/notes", "Replace the tags and the note of a run", s.runs.putNotes),
		get("/api/v1/runs/{run}/du", "What a run takes in the store, by kind; it lists all of its objects", nil, s.runs.showUsage),
		get("/api/v1/runs/{run}/status", "What a run that goes on says of itself; needs Temporal", nil, s.steer.showStatus),
		{
			Method: http.MethodGet, Path: "/api/v1/events", Summary: "What runs leave while they go on, as server-sent events", Content: "text/event-stream",
			Query: []param{{"run", "a run; repeat it for more"}, {"after", "a cursor, where the header Last-Event-ID cannot be set"}}, serve: s.events.stream,
		},
		{
			Method: http.MethodGet, Path: "/api/v1/runs/{run}/export/csv", Summary: "All series of a run as CSV", Content: "text/csv", serve: s.runs.exportCSV,
		},
		{
			Method: http.MethodGet, Path: "/api/v1/runs/{run}/export/tfevents", Summary: "All series of a run as an event file of TensorBoard",
			Content: "application/octet-stream", serve: s.runs.exportEvents,
		},
		{
			Method: http.MethodGet, Path: "/api/v1/runs/{run}/export/parquet", Summary: "The stored trajectories of a run as Parquet, in the columns in which verl dumps rollouts",
			Content: "application/vnd.apache.parquet", Query: []param{{"from", "first step"}, {"to", "last step"}}, serve: s.runs.exportParquet,
		},
		post("/api/v1/view", "Point the open pages that follow a run to another page", s.events.pointPages),
		{
			Method: http.MethodGet, Path: "/api/v1/runs/{run}/search", Summary: "Search in the texts of trajectories, newest step first, as lines of JSON", Content: "application/x-ndjson",
			Query: []param{
				{"q", "a text"}, {"regex", "1: q is a regular expression (RE2)"}, {"from", "first step"}, {"to", "last step"}, {"limit", "most hits, 100 without it"},
			},
			serve: s.finder.search,
		},
		post("/api/v1/runs/{run}/preview/{command}", "What a command would change, without sending it", s.steer.previewCommand),
		post("/api/v1/runs/{run}/commands/{command}", "Give a run a command: pause, resume, checkpoint, skip_stage, repeat_stage, amend, restart, stop, fork, pin, unpin", s.steer.sendCommand),
	}
}

func get[T any](path, summary string, query []param, f func(*request) (T, error)) route {
	return route{
		Method: http.MethodGet, Path: path, Summary: summary, Query: query, Answer: reflect.TypeFor[T](),
		serve: func(w http.ResponseWriter, r *request) error {
			out, err := f(r)
			if err != nil {
				return err
			}
			return reply(w, r.Request, out, r.immutable)
		},
	}
}

func post[B, T any](path, summary string, f func(*request, B) (T, error)) route {
	return taking(http.MethodPost, path, summary, f)
}

func put[B, T any](path, summary string, f func(*request, B) (T, error)) route {
	return taking(http.MethodPut, path, summary, f)
}

// taking makes a route that takes a body, and so needs the token.
func taking[B, T any](method, path, summary string, f func(*request, B) (T, error)) route {
	return route{
		Method: method, Path: path, Summary: summary, Answer: reflect.TypeFor[T](), Body: reflect.TypeFor[B](), Token: true,
		serve: func(w http.ResponseWriter, r *request) error {
			var body B
			dec := json.NewDecoder(r.Body)
			dec.DisallowUnknownFields()
			if err := dec.Decode(&body); err != nil {
				return problem{http.StatusBadRequest, "the body is no JSON object that this takes: " + err.Error()}
			}
			out, err := f(r, body)
			if err != nil {
				return err
			}
			return reply(w, r.Request, out, false)
		},
	}
}

// request is a request with what its route looks up.
type request struct {
	*http.Request
	// immutable marks an answer that never changes.
	immutable bool
}

// number reads a part of the path.
func (r *request) number(name string) (int, error) {
	n, err := strconv.Atoi(r.PathValue(name))
	if err != nil || n < 0 {
		return 0, problem{http.StatusBadRequest, fmt.Sprintf("%s is %s, want a number from 0", name, brief(r.PathValue(name)))}
	}
	return n, nil
}

// queryNumber reads a parameter of the query, or takes the default.
func (r *request) queryNumber(name string, otherwise int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, problem{http.StatusBadRequest, fmt.Sprintf("%s is %s, want a number from 0", name, brief(text))}
	}
	return n, nil
}

// serveRoute answers a route, its errors as application/problem+json.
func (a *access) serveRoute(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		var err error
		if r.Token || a.readNeedsToken {
			err = a.admit(in)
		}
		if err == nil {
			err = r.serve(w, &request{Request: in})
		}
		if err == nil {
			return
		}
		code, text := status(err)
		if code == http.StatusInternalServerError {
			a.log.Error("request failed", "path", r.Path, "err", err)
		}
		fail(w, code, text)
	})
}

// problem is an error with the status that a client gets.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

func missing(format string, args ...any) error {
	return problem{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// status returns the HTTP status and the text of an error.
func status(err error) (code int, text string) {
	var p problem
	switch {
	case errors.As(err, &p):
		return p.code, p.text
	case errors.Is(err, context.Canceled):
		return 499, "the client has gone"
	case errors.Is(err, blob.ErrNotExist):
		return http.StatusNotFound, "not recorded: " + err.Error()
	case errors.Is(err, blob.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "the store does not answer: " + err.Error()
	}
	switch fault.Of(err) {
	case fault.InvalidConfig, fault.NotFound:
		return http.StatusNotFound, err.Error()
	case fault.Refused, fault.Conflict:
		return http.StatusConflict, err.Error()
	case fault.Corrupt:
		return http.StatusUnprocessableEntity, "what is stored is damaged: " + err.Error()
	default:
		return http.StatusInternalServerError, err.Error()
	}
}

// fail writes an error as RFC 9457 wants it.
func fail(w http.ResponseWriter, code int, text string) {
	body, err := json.Marshal(map[string]any{"title": http.StatusText(code), "status": code, "detail": text})
	if err != nil { // texts and a number always encode
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client has gone when this fails
}

// squeezed is the size from which an answer is compressed for clients that accept it.
const squeezed = 32 << 10

func reply(w http.ResponseWriter, r *http.Request, v any, immutable bool) error {
	var data []byte
	if ready, ok := v.(interface{ encoded() []byte }); ok {
		data = ready.encoded()
	}
	if data == nil {
		var err error
		if data, err = json.Marshal(v); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if immutable {
		h.Set("Cache-Control", "private, max-age=86400")
	}
	h.Set("Vary", "Accept-Encoding")
	if len(data) < squeezed || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(data) // the client has gone when this fails
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil { // the level is one
		return err
	}
	_, _ = z.Write(data) // the client has gone when this fails
	_ = z.Close()        // as above
	return nil
}
