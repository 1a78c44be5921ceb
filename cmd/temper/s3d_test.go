package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"temper/internal/cli"
)

// TestUpRefusesAStoreThatRefuses before anything is started.
func TestUpRefusesAStoreThatRefuses(t *testing.T) {
	w := newWrongWorld(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`)) // the client may be gone
	}))
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
	var out, errs strings.Builder
	code := execute([]string{"up", "--store", "s3://b/p?path_style=true&endpoint=" + server.URL, "--temporal", w.closed, "--python", "sh", "--run", "../../configs/ci.yaml"}, &out, &errs)
	if code != cli.ExitUser || !strings.Contains(errs.String(), "credentials") || strings.Contains(errs.String(), "hunter2") {
		t.Errorf("exit code %d, stderr %q; want %d and what to do about the credentials", code, errs.String(), cli.ExitUser)
	}
	if out.Len() > 0 || asked.Load() == 0 || asked.Load() > 3 {
		t.Errorf("stdout %q after %d requests: something was started, or a refusal was tried again", out.String(), asked.Load())
	}
}
