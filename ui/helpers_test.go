package ui_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/ui"
	"temper/workflows"
)

const token = "a token of the test, long enough"

// played is a store with a whole run, "demo", and one under way, "half"; tests read it alone.
var played = struct {
	once sync.Once
	run  *runtest.Run
}{}

func playedRun(t *testing.T) *runtest.Run {
	t.Helper()
	played.once.Do(func() {
		h := runtest.New(t, nil)
		h.Whole(t, 6, true)
		runtest.Prepare(t, h.Store, "half", nil).Whole(t, 2, false)
		played.run = h
	})
	if played.run == nil {
		t.Fatal("the run of the tests could not be played")
	}
	return played.run
}

// TestDump writes that store to a folder, to be looked at.
func TestDump(t *testing.T) {
	dir := os.Getenv("TEMPER_UI_DUMP")
	if dir == "" {
		t.Skip("TEMPER_UI_DUMP names no folder")
	}
	h := playedRun(t)
	to, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := h.Store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		data, err := blob.ReadKey(t.Context(), h.Store, info.Key)
		if err == nil {
			_, err = blob.PutBytes(t.Context(), to, info.Key, data, blob.Always)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// steered is a Steerer that remembers.
type steered struct {
	mu   sync.Mutex
	sent []string
	args []workflows.Command
	err  error
}

func (s *steered) Status(context.Context, string) (workflows.RunStatus, error) {
	return workflows.RunStatus{State: workflows.StateTraining, Step: 2}, s.err
}

func (s *steered) Open(context.Context) ([]workflows.OpenRun, error) {
	return []workflows.OpenRun{{RunID: "half", State: workflows.StatePaused}}, s.err
}

func (s *steered) Send(_ context.Context, runID, command string, arg workflows.Command) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.args = append(s.sent, runID+" "+command), append(s.args, arg)
	return "it will", s.err
}

// site is a dashboard that is served.
type site struct {
	*httptest.Server
	steer *steered
}

func newSite(t *testing.T, store blob.Store, change func(*ui.Config)) *site {
	t.Helper()
	s := &site{steer: &steered{}}
	cfg := ui.Config{Store: store, Steer: s.steer, Token: token, Build: "test", Log: slog.New(slog.DiscardHandler), Now: time.Now}
	if change != nil {
		change(&cfg)
	}
	server, err := ui.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(server)
	t.Cleanup(func() {
		server.Close()
		s.CloseClientConnections()
		s.Server.Close()
	})
	return s
}

// ask sends a request and returns the answer with its whole body.
func (s *site) ask(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return resp, string(data)
}

// read asks for a path of the API and decodes the answer.
func read[T any](t *testing.T, s *site, path string) T {
	t.Helper()
	resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, "")
	var out T
	if err := json.Unmarshal([]byte(body), &out); resp.StatusCode != http.StatusOK || err != nil {
		t.Fatalf("GET %s: %s, %v\n%.300s", path, resp.Status, err, body)
	}
	return out
}

// firstGroup is a problem of a step that was kept.
func firstGroup(t *testing.T, h *runtest.Run, step int) run.GroupRecord {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Step(step).Batch())
	var batch run.StoredBatch
	if err == nil {
		err = json.Unmarshal(data, &batch)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range batch.Groups {
		if g.NumSamples > 0 {
			return g
		}
	}
	t.Fatalf("step %d kept no group", step)
	return run.GroupRecord{}
}
