package export_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"temper/internal/blob"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/series"
)

// TestRolloutsComeBackFromParquet: every stored trajectory is one row, with its text, its
// key and what became of it.
func TestRolloutsComeBackFromParquet(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	n, err := export.Rollouts(t.Context(), r, 2, math.MaxInt, &file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[export.Rollout](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(got) != n || n == 0 {
		t.Fatalf("%d rows of %d (%v)", len(got), n, err)
	}
	want := 0
	for step := 2; step <= 3; step++ {
		index, _, err := history.RolloutsOf(r).Index(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range index {
			one := got[want+i]
			if int(one.Step) != step || one.UID != row.Problem || int(one.Rollout) != row.Rollout || one.Score != row.Reward || one.Fate != row.Fate || one.Input == "" || one.Output == "" || one.GTs == "" {
				t.Errorf("step %d: %+v is exported as %+v", step, row, one)
			}
		}
		want += len(index)
	}
	if n != want {
		t.Errorf("%d rows, want %d", n, want)
	}
}

// TestRepeatedStage: the steps of a stage that was repeated are of a stage of their own, with
// the keys of its problems, and go on where an export was before.
func TestRepeatedStage(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 6, false)
	dir := t.TempDir()
	server := &mlflow{tags: map[string]string{}, metrics: map[float64]map[string]float64{}, params: map[string]string{}}
	site := httptest.NewServer(server)
	defer site.Close()
	m := export.MLflow{Address: site.URL, Experiment: "e", Client: site.Client()}
	send := func(want int) {
		t.Helper()
		r, err := history.Open(t.Context(), h.Store, "demo")
		if err != nil {
			t.Fatal(err)
		}
		if _, sent, err := m.Export(t.Context(), r); err != nil || sent != want {
			t.Errorf("%d steps sent to MLflow (%v), want %d", sent, err, want)
		}
		folder, _, err := export.WandB(t.Context(), r, dir, "temper")
		if err != nil {
			t.Fatal(err)
		}
		mark := filepath.Join(folder, "run-demo.wandb.synced")
		if _, err := os.Stat(mark); err == nil {
			t.Error("wandb sync would pass over what is new")
		}
		if err := os.WriteFile(mark, nil, 0o600); err != nil { // as wandb sync does
			t.Fatal(err)
		}
	}
	send(6)
	h.Repeat(t, "second")
	h.Continue(t, 7, 8)
	send(2)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := export.Rollouts(t.Context(), r, 5, 8, &file); err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[export.Rollout](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	stages := map[int64]int64{}
	for _, one := range got {
		stages[one.Step] = one.Stage
		if one.Input == "" || one.GTs == "" {
			t.Errorf("step %d: %+v has no problem", one.Step, one)
		}
	}
	if diff := cmp.Diff(map[int64]int64{5: 2, 6: 2, 7: 3, 8: 3}, stages); diff != "" {
		t.Errorf("stages of the steps: want -, got +\n%s", diff)
	}
}

// mlflow is a server that keeps what it is sent.
type mlflow struct {
	tags    map[string]string
	metrics map[float64]map[string]float64 // by step
	params  map[string]string
	created int
	status  string
	kept    int // connections that are to stay open for more requests
	found   func()
}

func (m *mlflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Metrics []struct {
			Key         string
			Value, Step float64
		}
		Tags, Params       []struct{ Key, Value string }
		Key, Value, Status string
	}
	_ = json.NewDecoder(r.Body).Decode(&in) // a GET has none
	if !r.Close {
		m.kept++
	}
	answer := any(map[string]any{})
	switch strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/") {
	case "experiments/get-by-name":
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]string{"error_code": "RESOURCE_DOES_NOT_EXIST"}
	case "experiments/create":
		answer = map[string]string{"experiment_id": "7"}
	case "runs/search":
		if m.found != nil {
			m.found()
		}
		if m.created > 0 {
			tags := []map[string]string{}
			for k, v := range m.tags {
				tags = append(tags, map[string]string{"key": k, "value": v})
			}
			answer = map[string]any{"runs": []any{map[string]any{"info": map[string]string{"run_id": "r1"}, "data": map[string]any{"tags": tags}}}}
		}
	case "runs/create":
		m.created++
		for _, tag := range in.Tags {
			m.tags[tag.Key] = tag.Value
		}
		answer = map[string]any{"run": map[string]any{"info": map[string]string{"run_id": "r1"}}}
	case "runs/log-batch":
		for _, one := range in.Metrics {
			if m.metrics[one.Step] == nil {
				m.metrics[one.Step] = map[string]float64{}
			}
			m.metrics[one.Step][one.Key] = one.Value
		}
		for _, one := range in.Params {
			if before, ok := m.params[one.Key]; ok || len(in.Params) > 100 || strings.ContainsAny(one.Key, "[]") {
				http.Error(w, "parameter "+one.Key+" was "+before, http.StatusBadRequest)
				return
			}
			m.params[one.Key] = one.Value
		}
	case "runs/set-tag":
		m.tags[in.Key] = in.Value
	case "runs/update":
		m.status = in.Status
	}
	_ = json.NewEncoder(w).Encode(answer) // the client has gone when this fails
}

// TestMLflowGetsEachStepOnce, with all its numbers, however often it is exported.
func TestMLflowGetsEachStepOnce(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	var none run.StepRecord // without a correct trajectory
	if err := blob.ReadJSON(t.Context(), h.Store, h.Layout.Step(2).Log(), &none); err != nil {
		t.Fatal(err)
	}
	none.Metrics[series.Reward] = 0
	if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.Step(2).Log(), none, blob.Always); err != nil {
		t.Fatal(err)
	}
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	server := &mlflow{tags: map[string]string{}, metrics: map[float64]map[string]float64{}, params: map[string]string{}}
	site := httptest.NewServer(server)
	defer site.Close()
	m := export.MLflow{Address: site.URL + "/", Experiment: "e", Client: site.Client()}
	for _, want := range []int{3, 0} {
		if id, sent, err := m.Export(t.Context(), r); err != nil || id != "r1" || sent != want {
			t.Errorf("run %q, %d steps sent (%v), want %d", id, sent, err, want)
		}
	}
	if server.kept > 0 {
		t.Errorf("%d requests keep connections that the server may be closing", server.kept)
	}
	records, err := r.Records(t.Context())
	if err != nil || server.created != 1 || server.tags["temper.run"] != "demo" {
		t.Errorf("%d runs made, tags %v (%v)", server.created, server.tags, err)
	}
	cfg, err := r.Config(t.Context())
	if err != nil || server.params["rl.optimizer.lr"] != strconv.FormatFloat(cfg.RL.Optimizer.LR, 'g', -1, 64) || server.params["stages.0.name"] != cfg.Stages[0].Name {
		t.Errorf("parameters %v (%v)", server.params, err)
	}
	for _, rec := range records {
		if rec.Step == 2 {
			delete(rec.Metrics, series.CorrectErrors)
			delete(rec.Metrics, series.KeptErrors)
		}
		if diff := cmp.Diff(map[string]float64(rec.Metrics), server.metrics[float64(rec.Step)]); diff != "" {
			t.Errorf("step %d: the record is -, what was sent +\n%s", rec.Step, diff)
		}
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer refusing.Close()
	m.Address = refusing.URL
	if _, _, err := m.Export(t.Context(), r); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a server that refuses: %v", err)
	}
}

// TestMLflowOfARunThatEndsMeanwhile: a run is finished there with its last step and not before.
func TestMLflowOfARunThatEndsMeanwhile(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	server := &mlflow{tags: map[string]string{}, metrics: map[float64]map[string]float64{}, params: map[string]string{}}
	site := httptest.NewServer(server)
	defer site.Close()
	server.found = sync.OnceFunc(func() { h.Continue(t, 3, 3) }) // after the records were read
	m := export.MLflow{Address: site.URL, Experiment: "e", Client: site.Client()}
	if _, sent, err := m.Export(t.Context(), r); err != nil || sent != 2 || server.status != "" {
		t.Errorf("%d steps sent (%v), and the run is %q", sent, err, server.status)
	}
	if _, sent, err := m.Export(t.Context(), r); err != nil || sent != 1 || server.status != "FINISHED" {
		t.Errorf("then %d steps sent (%v), and the run is %q", sent, err, server.status)
	}
}
