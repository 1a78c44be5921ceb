package ui

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/service"
	"temper/internal/temporalclient"
)

// Place describes the service around the dashboard. With a nil Place it knows only the store.
type Place interface {
	// Processes returns the processes of the service on this machine. Errors: fs.ErrNotExist.
	Processes(ctx context.Context) ([]service.Process, error)
	// Schedules returns the schedules of the Temporal server.
	Schedules(ctx context.Context) ([]temporalclient.View, error)
}

// Gauge is a number that a process exports.
type Gauge struct {
	Name  string `json:"name"` // with its labels
	Value Number `json:"value"`
	Help  string `json:"help,omitempty"`
}

// ProcessView is a process with its numbers.
type ProcessView struct {
	service.Process
	Gauges []Gauge `json:"gauges"`
}

// ServicesView are the processes of the service.
type ServicesView struct {
	Processes []ProcessView `json:"processes"`
	// Remark tells why there are none.
	Remark string `json:"remark,omitempty"`
}

// maxGauges bounds the numbers of one process.
const maxGauges = 400

// servicePages describes the dashboard and the service around it.
type servicePages struct {
	build, temporalUI, token string
	store                    blob.Store
	steer                    Steerer
	place                    Place
}

func (sp *servicePages) showServices(r *request) (ServicesView, error) {
	out := ServicesView{Processes: []ProcessView{}}
	if sp.place == nil {
		out.Remark = "this dashboard was started with --read-only: it knows the store alone"
		return out, nil
	}
	all, err := sp.place.Processes(r.Context())
	if errors.Is(err, fs.ErrNotExist) {
		out.Remark = "no temper up runs in the home of this dashboard, so that it knows no processes"
		return out, nil
	}
	if err != nil {
		return out, problem{http.StatusServiceUnavailable, "the processes of the service: " + err.Error()}
	}
	for _, p := range all {
		out.Processes = append(out.Processes, ProcessView{p, gaugesOf(p.Metrics)})
	}
	return out, nil
}

// gaugesOf parses the text format of Prometheus, without the buckets of histograms and the
// metrics of the Go runtime.
func gaugesOf(text string) []Gauge {
	out := []Gauge{}
	help := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() && len(out) < maxGauges {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, meaning, _ := strings.Cut(rest, " ")
			help[name] = meaning
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		name, _, _ := strings.Cut(line[:at], "{")
		if strings.HasSuffix(name, "_bucket") || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err == nil {
			out = append(out, Gauge{line[:at], Number(value), help[name]})
		}
	}
	return out
}

// ScheduleRow is a schedule of re-trainings.
type ScheduleRow struct {
	ID     string     `json:"id"`
	When   []string   `json:"when"`
	Paused bool       `json:"paused,omitempty"`
	Note   string     `json:"note,omitempty"`
	Next   *time.Time `json:"next,omitempty"`
	// Good is the last good policy, as RUN@POLICY, Last how the newest re-training ended.
	Good    string   `json:"good,omitempty"`
	Last    string   `json:"last,omitempty"`
	Running []string `json:"running"`
	Missed  int      `json:"missed,omitempty"`
	Skipped int      `json:"skipped,omitempty"`
	// Events are the newest ones, the newest first.
	Events []Mark `json:"events"`
}

func scheduleRow(v temporalclient.View) ScheduleRow {
	out := ScheduleRow{ID: v.ID, Paused: v.Paused, Note: v.Note, Next: v.Next, Good: v.Good, Last: v.Last, When: []string{}, Running: []string{}, Events: []Mark{}}
	if d := v.Details; d != nil {
		out.When, out.Running, out.Missed, out.Skipped = orEmpty(d.When), orEmpty(d.Running), d.Missed, d.Skipped
		for _, e := range slices.Backward(d.Events) {
			out.Events = append(out.Events, Mark{At: e.Time, Kind: e.Kind, Text: e.Text})
		}
	}
	return out
}

// SchedulesView are the schedules of re-trainings.
type SchedulesView struct {
	Schedules []ScheduleRow `json:"schedules"`
	// Remark tells why there are none.
	Remark string `json:"remark,omitempty"`
}

func (sp *servicePages) showSchedules(r *request) (SchedulesView, error) {
	out := SchedulesView{Schedules: []ScheduleRow{}}
	if sp.place == nil {
		out.Remark = "this dashboard was started with --read-only: schedules are known to a Temporal server alone"
		return out, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	list, err := sp.place.Schedules(ctx)
	if err != nil {
		out.Remark = "Temporal does not answer: " + err.Error()
		return out, nil
	}
	for _, v := range list {
		out.Schedules = append(out.Schedules, scheduleRow(v))
	}
	return out, nil
}

// RunAlert is a broken rule of a run.
type RunAlert struct {
	RunID string `json:"run_id"`
	State string `json:"state"`
	Step  int    `json:"step"`
	Text  string `json:"text"`
}

// showAlerts lists the runs whose watch has a broken rule after their newest step.
func (rt *runTable) showAlerts(r *request) ([]RunAlert, error) {
	entries, err := rt.lister.List(r.Context())
	if err != nil {
		return nil, err
	}
	out := []RunAlert{}
	for _, e := range entries {
		if e.Trouble != "" {
			out = append(out, RunAlert{RunID: e.RunID, State: e.State, Step: e.Step, Text: e.Trouble})
		}
	}
	return out, nil
}
