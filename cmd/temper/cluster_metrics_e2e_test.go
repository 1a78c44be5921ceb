//go:build integration

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
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

// boardIsAnswered looks for each series that the board and the alerts ask for in what the
// roles export.
func (o *onNomad) boardIsAnswered() {
	o.t.Helper()
	exported := map[string]bool{}
	tokens := o.secrets()
	for service, token := range map[string]string{
		"e2e-control-health": "", "e2e-trainer-health": "", "e2e-gateway": tokens["sandbox_token"], "e2e-sandbox": tokens["node_token"],
	} {
		found, _, err := o.agents.API.Services().Get(service, nil)
		if err != nil || len(found) == 0 {
			o.t.Fatalf("%d services %s (%v)", len(found), service, err)
		}
		last := found[len(found)-1]
		text := scrape(o.t, fmt.Sprintf("http://%s:%d/metrics", last.Address, last.Port), token)
		names := regexp.MustCompile(`(?m)^([a-z_][a-z0-9_]*)[{ ]`).FindAllStringSubmatch(text, -1)
		if len(names) < 20 {
			o.t.Errorf("%s exports %d series:\n%s", service, len(names), text)
		}
		for _, m := range names {
			exported[m[1]] = true
		}
	}
	for file, queries := range queriesOf(o.t) {
		if len(queries) < 5 {
			o.t.Errorf("%s has %d queries", file, len(queries))
		}
		for _, query := range queries {
			names := metricName.FindAllString(query, -1)
			if len(names) == 0 && !strings.Contains(query, "up{") && !strings.Contains(query, "nomad_") {
				o.t.Errorf("%s: %q asks for no series of ours", file, query)
			}
			for _, name := range slices.Compact(names) {
				if !exported[name] && !slices.Contains(firstFailure, name) {
					o.t.Errorf("%s: no role exports %s (%s)", file, name, query)
				}
			}
		}
	}
}

// secrets are those of the cluster.
func (o *onNomad) secrets() map[string]string {
	o.t.Helper()
	v, _, err := o.agents.API.Variables().Read("temper/e2e", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return v.Items
}

func scrape(t *testing.T, url, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
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
