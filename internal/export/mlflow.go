package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
)

// MLflow is a server of MLflow, by its REST API 2.0.
type MLflow struct {
	// Address is the address of the server. Experiment is the name of the experiment, which
	// is created if it is missing.
	Address, Experiment string
	// Token is sent as a bearer token; empty for none.
	Token  string
	Client *http.Client
}

// Tags by which an exported run is found again.
const (
	tagRun  = "temper.run"
	tagStep = "temper.last_step"
)

// Limits of MLflow: numbers and parameters in one request, and bytes of a parameter.
const (
	mlflowBatch  = 1000
	mlflowParams = 100
	mlflowValue  = 6000
)

// mlflowName makes names of keys: MLflow takes no brackets.
var mlflowName = strings.NewReplacer("[", ".", "]", "")

// Export sends the series of a run and returns the id of MLflow's run and the number of new
// steps. For an existing run it sends the steps after the last one sent. It leaves out
// numbers that are not finite: no version of MLflow takes them as text.
func (m *MLflow) Export(ctx context.Context, r *history.Run) (id string, sent int, err error) {
	summary, ended, err := r.Summary(ctx) // first: a run that ends meanwhile has steps that are not sent yet
	if err != nil {
		return "", 0, err
	}
	records, err := r.Records(ctx)
	if err != nil {
		return "", 0, err
	}
	if len(records) == 0 {
		return "", 0, fault.Newf(fault.InvalidConfig, "run %s has no step to export yet", r.ID())
	}
	experiment, err := m.experiment(ctx)
	if err != nil {
		return "", 0, err
	}
	id, last, err := m.find(ctx, experiment, r.ID())
	if err == nil && id == "" {
		id, err = m.create(ctx, experiment, r, records[0].Started)
	}
	if err != nil {
		return "", 0, err
	}
	if last == 0 {
		if err := m.logParams(ctx, id, r); err != nil {
			return id, 0, err
		}
	}
	records = slices.DeleteFunc(records, func(rec run.StepRecord) bool { return rec.Step <= last })
	for _, rec := range records {
		if err := m.logStep(ctx, id, rec); err != nil {
			return id, sent, err
		}
		sent++
	}
	if ended {
		err = m.finish(ctx, id, summary)
	}
	return id, sent, err
}

func (m *MLflow) experiment(ctx context.Context) (string, error) {
	var got struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
		ID string `json:"experiment_id"`
	}
	err := m.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.Experiment), nil, &got)
	if errors.Is(err, errMissing) {
		err = m.call(ctx, http.MethodPost, "experiments/create", map[string]any{"name": m.Experiment}, &got)
		return got.ID, err
	}
	return got.Experiment.ID, err
}

// find returns the run that was exported before and its last step; "" for none.
func (m *MLflow) find(ctx context.Context, experiment, runID string) (id string, last int, err error) {
	var got struct {
		Runs []struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
			Data struct {
				Tags []struct{ Key, Value string } `json:"tags"`
			} `json:"data"`
		} `json:"runs"`
	}
	err = m.call(ctx, http.MethodPost, "runs/search", map[string]any{
		"experiment_ids": []string{experiment}, "filter": fmt.Sprintf("tags.`%s` = '%s'", tagRun, runID), "max_results": 1,
	}, &got)
	if err != nil || len(got.Runs) == 0 {
		return "", 0, err
	}
	for _, tag := range got.Runs[0].Data.Tags {
		if tag.Key == tagStep {
			last, _ = strconv.Atoi(tag.Value) // 0 sends all again
		}
	}
	return got.Runs[0].Info.ID, last, nil
}

func (m *MLflow) create(ctx context.Context, experiment string, r *history.Run, started time.Time) (string, error) {
	var got struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err := m.call(ctx, http.MethodPost, "runs/create", map[string]any{
		"experiment_id": experiment, "run_name": r.ID(), "start_time": started.UnixMilli(),
		"tags": []map[string]string{{"key": tagRun, "value": r.ID()}, {"key": "temper.seed", "value": strconv.FormatUint(r.Plan.Seed, 10)}},
	}, &got)
	return got.Run.Info.ID, err
}

// logParams sends the configuration with which the run was opened: MLflow lets no parameter change.
func (m *MLflow) logParams(ctx context.Context, id string, r *history.Run) error {
	cfg, err := r.Config(ctx)
	if err != nil {
		return err
	}
	cfg.Amendments = nil
	flat, err := config.Flat(cfg)
	if err != nil {
		return err
	}
	var params []map[string]string
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		if value := flat[key]; value != "" {
			params = append(params, map[string]string{"key": mlflowName.Replace(key), "value": value[:min(len(value), mlflowValue)]})
		}
	}
	for part := range slices.Chunk(params, mlflowParams) {
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": id, "params": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

// logStep sends a step; its number goes last, so that a step that was cut off is sent again.
func (m *MLflow) logStep(ctx context.Context, id string, rec run.StepRecord) error {
	var metrics []map[string]any
	for name, value := range rec.Metrics.Known() {
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			metrics = append(metrics, map[string]any{"key": name, "value": value, "timestamp": rec.Ended.UnixMilli(), "step": rec.Step})
		}
	}
	for part := range slices.Chunk(metrics, mlflowBatch) {
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": id, "metrics": part}, nil); err != nil {
			return err
		}
	}
	return m.call(ctx, http.MethodPost, "runs/set-tag", map[string]any{"run_id": id, "key": tagStep, "value": strconv.Itoa(rec.Step)}, nil)
}

// finish ends the run of MLflow when ours has ended.
func (m *MLflow) finish(ctx context.Context, id string, s run.Summary) error {
	return m.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": id, "status": "FINISHED", "end_time": s.Ended.UnixMilli()}, nil)
}

var errMissing = errors.New("there is no such thing")

// mostAnswer bounds what is read of an answer.
const mostAnswer = 8 << 20

func (m *MLflow) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(m.Address, "/")+"/api/2.0/mlflow/"+path, body)
	if err != nil {
		return fault.New(fault.InvalidConfig, err)
	}
	// The server closes connections after some seconds without a request, and one that it is
	// closing cannot be told from one that has failed.
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	if m.Token != "" {
		req.Header.Set("Authorization", "Bearer "+m.Token)
	}
	resp, err := m.Client.Do(req)
	if err != nil {
		return fmt.Errorf("MLflow: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read alone
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("MLflow: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var why struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		_ = json.Unmarshal(data, &why) // of another server: the status says enough
		if why.Code == "RESOURCE_DOES_NOT_EXIST" {
			return errMissing
		}
		return fmt.Errorf("MLflow at %s answers %s to %s: %.200q", m.Address, resp.Status, strings.SplitN(path, "?", 2)[0], why.Message)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("MLflow at %s: the answer to %s is no JSON: %w", m.Address, path, err)
	}
	return nil
}
