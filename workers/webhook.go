package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"temper/internal/config"
	"temper/internal/run"
)

// webhookTimeout bounds what a step may wait for a webhook.
const webhookTimeout = 3 * time.Second

// webhook returns what posts the alerts of runs, as JSON, to a URL; nil for none. It
// is best effort: the alerts are in the run's event log in any case. A notice may
// come twice, after a crash in between. The URL is a secret and in no log.
func webhook(to config.Secret, log *slog.Logger) func(context.Context, run.Notice) {
	if to == "" {
		return nil
	}
	client := &http.Client{Timeout: webhookTimeout}
	return func(ctx context.Context, n run.Notice) {
		if err := post(ctx, client, string(to), n); err != nil {
			log.WarnContext(ctx, "webhook did not take an alert", "run_id", n.RunID, "step", n.Step, "err", err)
		}
	}
}

func post(ctx context.Context, client *http.Client, to string, n run.Notice) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(data))
	if err != nil {
		return errors.New("the URL cannot be asked") // its error quotes the URL
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err // without the URL
	}
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // nothing is read of it
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("it answered %s", res.Status)
	}
	return nil
}
