package main

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/dynamicconfig"
)

// call is one request of a browser or a script, and what came back.
type call struct {
	method, url, host string
	header            map[string]string
	body              string
}

func (c call) do(t *testing.T) (int, string, []*http.Cookie) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if c.host != "" {
		req.Host = c.host
	}
	for key, value := range c.header {
		req.Header.Set(key, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read in full below
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Cookies()
}

// TestBrowsersComeInByKnownNames asks a real server under many names.
func TestBrowsersComeInByKnownNames(t *testing.T) {
	uiPort, httpPort := port(t), port(t)
	p := start(t, "server", "--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", uiPort, "--http-port", httpPort,
		"--ui-host", "Temper.example.org,box", "--ui-host", "192.0.2.7")
	namespace := "/api/v1/namespaces/default"
	for host, want := range map[string]int{
		"":                               http.StatusOK, // 127.0.0.1:port, as the client writes it
		"localhost":                      http.StatusOK,
		"LOCALHOST:" + uiPort:            http.StatusOK,
		"localhost.:9":                   http.StatusOK,
		"[::1]:" + uiPort:                http.StatusOK,
		"127.0.0.9:1":                    http.StatusOK,
		"temper.example.org":             http.StatusOK,
		"temper.example.org:8443":        http.StatusOK,
		"box:" + uiPort:                  http.StatusOK,
		"192.0.2.7:" + uiPort:            http.StatusOK,
		"evil.example:" + uiPort:         http.StatusForbidden,
		"127.0.0.1.evil.example":         http.StatusForbidden,
		"localhost.evil.example":         http.StatusForbidden,
		"evil.temper.example.org":        http.StatusForbidden,
		"0.0.0.0:" + uiPort:              http.StatusForbidden,
		"192.0.2.8:" + uiPort:            http.StatusForbidden,
		"[::ffff:192.0.2.8]:" + uiPort:   http.StatusForbidden,
		"[::ffff:127.0.0.1]:" + uiPort:   http.StatusOK,
		"xn--localhost-evil:" + httpPort: http.StatusForbidden,
	} {
		for name, url := range map[string]string{"page": p.ready.UI + "/", "UI's API": p.ready.UI + namespace, "HTTP API": p.ready.HTTP + namespace, "health": p.ready.UI + "/healthz"} {
			status, body, _ := call{method: http.MethodGet, url: url, host: host}.do(t)
			if status != want {
				t.Errorf("%s under host %q = %d %.200q, want %d", name, host, status, body, want)
			}
			if want == http.StatusForbidden && (strings.Count(body, "\n") != 1 || !strings.Contains(body, host) || !strings.Contains(body, "--ui-host")) {
				t.Errorf("%s under host %q says %q, want one line that names the host and the flag", name, host, body)
			}
		}
	}
}

// TestOnlyItsOwnPagesSteer starts a workflow from pages of several origins.
func TestOnlyItsOwnPagesSteer(t *testing.T) {
	p := start(t, "server", "--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", port(t), "--http-port", port(t),
		"--ui-host", "temper.example.org")
	c := dial(t, p.ready.Address)
	for name, row := range map[string]struct {
		host   string
		header map[string]string
		want   int
	}{
		"no page":              {"", nil, http.StatusOK},
		"own-page":             {"", map[string]string{"Origin": "own", "Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		"own-page-by-name":     {"localhost:1", map[string]string{"Origin": "http://localhost:1"}, http.StatusOK},
		"proxy":                {"temper.example.org", map[string]string{"Origin": "https://temper.example.org"}, http.StatusOK},
		"proxy-renames":        {"", map[string]string{"Origin": "https://temper.example.org"}, http.StatusOK},
		"foreign":              {"", map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden},
		"foreign-plain":        {"", map[string]string{"Origin": "http://evil.example", "Content-Type": "text/plain"}, http.StatusForbidden},
		"another-port":         {"", map[string]string{"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"another-loopback":     {"localhost:1", map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		"file":                 {"", map[string]string{"Origin": "null"}, http.StatusForbidden},
		"cross-site":           {"", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"rebound":              {"evil.example:8233", map[string]string{"Origin": "http://evil.example:8233", "Sec-Fetch-Site": "same-origin"}, http.StatusForbidden},
		"rebound-forwarded":    {"evil.example:8233", map[string]string{"X-Forwarded-Host": "localhost"}, http.StatusForbidden},
		"authorized-but-alien": {"", map[string]string{"Origin": "http://evil.example", "Authorization": "Bearer x"}, http.StatusForbidden},
	} {
		for kind, base := range map[string]string{"ui": p.ready.UI, "http": p.ready.HTTP} {
			t.Run(kind+" "+name, func(t *testing.T) {
				id := kind + "-" + strings.ReplaceAll(name, " ", "-")
				header := map[string]string{"Content-Type": "application/json"}
				if kind == "ui" { // as the page does: the cookie, repeated in a header
					_, _, cookies := call{method: http.MethodGet, url: base + "/"}.do(t)
					for _, cookie := range cookies {
						if cookie.Name == "_csrf" {
							header["Cookie"], header["X-CSRF-Token"] = "_csrf="+cookie.Value, cookie.Value
						}
					}
				}
				for key, value := range row.header {
					if value == "own" {
						value = base
					}
					header[key] = value
				}
				status, body, _ := call{
					method: http.MethodPost, url: base + "/api/v1/namespaces/default/workflows/" + id, host: row.host, header: header,
					body: `{"workflowType": {"name": "none"}, "taskQueue": {"name": "none"}}`,
				}.do(t)
				_, err := c.WorkflowService().DescribeWorkflowExecution(t.Context(), &workflowservice.DescribeWorkflowExecutionRequest{
					Namespace: "default", Execution: &common.WorkflowExecution{WorkflowId: id},
				})
				if started := err == nil; status != row.want || started != (row.want == http.StatusOK) {
					t.Errorf("status %d %.300q, workflow started: %v, want %d", status, body, started, row.want)
				}
				if row.want == http.StatusForbidden && strings.Count(body, "\n") != 1 {
					t.Errorf("%q is not one line", body)
				}
			})
		}
	}
}

// TestInnerPortAnswersNobodyElse: the frontend's own HTTP port is no way around the guard.
func TestInnerPortAnswersNobodyElse(t *testing.T) {
	o := options{ip: "127.0.0.1", httpPort: 1}
	a, b := newInnerAPI(o, 2), newInnerAPI(o, 2)
	if a.host == b.host || len(a.host) < 20 {
		t.Errorf("names %q and %q, want two that nobody can guess", a.host, b.host)
	}
	hosts := settings(a)[dynamicconfig.FrontendHTTPAllowedHosts.Key()]
	if names, ok := hosts.([]string); !ok || len(names) != 1 || names[0] != a.host {
		t.Errorf("the frontend answers under %v, want %q alone", hosts, a.host)
	}
}

func TestHostFlag(t *testing.T) {
	o, err := parse([]string{"--ui-host", " A.Example.org:80 ,b.", "--ui-host", "[2001:DB8::1]:443,0.0.0.0"})
	if got, want := strings.Join(o.uiHosts, " "), "a.example.org b 2001:db8::1"; err != nil || got != want {
		t.Errorf("hosts %q, error %v, want %q", got, err, want)
	}
	for _, bad := range []string{"https://temper.example.org", "*.example.org", "a b", "host:port", "bad host:1"} {
		var usage usageError
		if _, err := parse([]string{"--ui-host", bad}); !errors.As(err, &usage) || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("--ui-host %q: error %v, want one of usage that names it", bad, err)
		}
	}
}
