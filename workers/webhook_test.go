package workers

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/rules"
	"temper/internal/run"
)

// TestWebhook gets the alerts of a run as JSON. A failure is a warning that does not
// show the URL, which is a secret.
func TestWebhook(t *testing.T) {
	var got run.Notice
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("%s %q: %v", r.Method, body, err)
		}
		w.WriteHeader(status)
	}))
	var log bytes.Buffer
	notify := webhook(config.Secret(s.URL+"/hunter2"), slog.New(slog.NewJSONHandler(&log, nil)))
	notice := run.Notice{RunID: "demo", Step: 7, Alerts: []rules.Alert{{Rule: rules.RuleReward, Step: 7, Text: "it fell"}}}
	notify(t.Context(), notice)
	if got.RunID != "demo" || len(got.Alerts) != 1 || got.Alerts[0].Text != "it fell" || log.Len() > 0 {
		t.Errorf("got %+v, log %s", got, log.String())
	}
	status = http.StatusTeapot
	notify(t.Context(), notice)
	s.Close()
	notify(t.Context(), notice)
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "418") || strings.Contains(log.String(), "hunter2") {
		t.Errorf("log %s", log.String())
	}
	if webhook("", slog.Default()) != nil {
		t.Error("somebody is told without a webhook")
	}
}
