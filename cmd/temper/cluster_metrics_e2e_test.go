//go:build integration

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricName is the name of a series in a query.
var metricName = regexp.MustCompile(`\b(rl_[a-z0-9_]+|temporal_[a-z0-9_]+|process_[a-z0-9_]+|go_[a-z0-9_]+)\b`)

// firstFailure are series that the SDK makes when something has failed for the first time.
var firstFailure = []string{"temporal_activity_execution_failed_total"}

// queriesOf are the queries of a board and of the alerts, by the file.
func queriesOf(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, file := range []string{"../../deploy/grafana/board.json", "../../deploy/prometheus/alerts.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") {
			var board any
			if err := json.Unmarshal(text, &board); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			walkExprs(board, func(expr string) { out[file] = append(out[file], expr) })
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^\s+expr: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			out[file] = append(out[file], m[1])
		}
	}
	return out
}

func walkExprs(v any, visit func(string)) {
	switch x := v.(type) {
	case map[string]any:
		for key, inner := range x {
			if text, ok := inner.(string); ok && key == "expr" {
				visit(text)
			}
			walkExprs(inner, visit)
		}
	case []any:
		for _, inner := range x {
			walkExprs(inner, visit)
		}
	}
}

// prometheusKey is the variable of the environment with a Prometheus; without it the one in PATH is taken.
const prometheusKey = "TEMPER_TEST_PROMETHEUS"

// hasPrometheus is 1 where the programs of the test have a Prometheus, which nodes start.
func hasPrometheus(t *testing.T) int {
	t.Helper()
	path := os.Getenv(prometheusKey)
	if path == "" {
		path, _ = exec.LookPath("prometheus") // "" when there is none
	}
	if path == "" {
		if os.Getenv("TEMPER_REQUIRE_PROMETHEUS") != "" {
			t.Fatal("no Prometheus: install the package prometheus, or name one with " + prometheusKey)
		}
		t.Log("without Prometheus: install the package prometheus, or name one with " + prometheusKey)
		return 0
	}
	if err := os.Symlink(path, filepath.Join(bin, "prometheus")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return 1
}

// boardIsAnswered has a real Prometheus, which the job metrics runs, find every role, read the alerts
// and answer each query of the board; and looks for each series that board and alerts ask for.
func (o *onNomad) boardIsAnswered() {
	o.t.Helper()
	found, _, err := o.agents.API.Services().Get("e2e-metrics", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if len(found) == 0 {
		return // said at the start
	}
	p := prometheus{o.t, fmt.Sprintf("http://%s:%d", found[0].Address, found[0].Port)}
	o.agents.Await("every role to answer Prometheus", func() error {
		down := slices.DeleteFunc([]string{"control", "trainer", "gateway", "sandbox"}, func(role string) bool {
			return len(p.query(`up{role="`+role+`"} == 1`)) > 0
		})
		if len(down) > 0 {
			return fmt.Errorf("%v do not; targets:\n%s", down, p.get("/api/v1/targets?state=active", nil))
		}
		return nil
	})
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	p.get("/api/v1/rules", &rules)
	var names []string
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Name)
			if r.Health == "err" {
				o.t.Errorf("alert %s: %s", r.Name, r.LastError)
			}
		}
	}
	if len(names) != 6 {
		o.t.Errorf("alerts %v, want 6", names)
	}
	for file, queries := range queriesOf(o.t) {
		if len(queries) < 5 {
			o.t.Errorf("%s has %d queries", file, len(queries))
		}
		for _, query := range queries {
			p.query(query) // an error is the test's
			series := metricName.FindAllString(query, -1)
			if len(series) == 0 && !strings.Contains(query, "up{") && !strings.Contains(query, "nomad_") {
				o.t.Errorf("%s: %q asks for no series of ours", file, query)
			}
			for _, name := range slices.Compact(series) {
				if !slices.Contains(firstFailure, name) && len(p.query("last_over_time("+name+"[1h])")) == 0 {
					o.t.Errorf("%s: no role exports %s (%s)", file, name, query)
				}
			}
		}
	}
}

// dashboardIsThere asks the cluster's own dashboard for the runs.
func (o *onNomad) dashboardIsThere() {
	o.t.Helper()
	found, _, err := o.agents.API.Services().Get("e2e-ui", nil)
	if err != nil || len(found) != 1 {
		o.t.Fatalf("%d dashboards (%v)", len(found), err)
	}
	address := fmt.Sprintf("http://%s:%d", found[0].Address, found[0].Port)
	if text := ask200(o.t, address+"/api/v1/runs"); !strings.Contains(text, `"urgent"`) {
		o.t.Errorf("the dashboard lists\n%s", text)
	}
}

// prometheus is a server of that name.
type prometheus struct {
	t       *testing.T
	address string
}

// get decodes an answer, and returns it.
func (p prometheus) get(path string, into any) string {
	p.t.Helper()
	text := ask200(p.t, p.address+path)
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			p.t.Fatalf("%s: %v\n%s", path, err, text)
		}
	}
	return text
}

// query is what an expression gives now.
func (p prometheus) query(expr string) []any {
	p.t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "1m", "$__interval", "15s").Replace(expr)
	var answer struct{ Data struct{ Result []any } }
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return answer.Data.Result
}

// ask200 is the body of a good answer.
func ask200(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", url, resp.Status, err, body)
	}
	return string(body)
}
