package nomad_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"temper/jobs/nomad"
)

// TestFailuresInOneLine: what an agent answers, in words that say what to do.
func TestFailuresInOneLine(t *testing.T) {
	const token = "5ecre7"
	for _, c := range []struct {
		name, token, body string
		status            int
		kind              error
		want              string
	}{
		{"no token", "", "Permission denied", 403, nomad.ErrDenied, "it asks for a token: set NOMAD_TOKEN"},
		{"unknown token", token, "ACL token not found", 403, nomad.ErrDenied, "it does not know the token"},
		{"expired token", token, "ACL token expired", 403, nomad.ErrDenied, "has expired"},
		{"changed job", token, "Enforcing job modify index 7: job exists with conflicting job modify index: 9", 500, nomad.ErrChanged, "apply again"},
		{"deployment", token, "job scaling blocked due to active deployment", 400, nomad.ErrBusy, "wait until it is well"},
		{"no leader", token, "No cluster leader", 500, nomad.ErrUnreachable, "has no server that leads"},
		{"gone", token, "job not found", 404, nomad.ErrNotExist, "does not exist"},
		{"other", token, "something\nelse", 500, nil, "answers 500: something else"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, c.body, c.status) }))
		t.Setenv("NOMAD_TOKEN", "")
		client, err := nomad.Connect(nomad.Config{Address: server.URL, Token: c.token})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = client.Jobs().Info("x", nil)
		err = client.Fail("read job x", err)
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want one line like %q", c.name, err, c.want)
		}
		server.Close()
		_, _, err = client.Jobs().Info("x", nil)
		if err = client.Fail("read job x", err); !errors.Is(err, nomad.ErrUnreachable) || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("no agent: %v", err)
		}
	}
	for _, address := range []string{"localhost:4646", "ftp://x", "http://"} {
		if _, err := nomad.Connect(nomad.Config{Address: address}); err == nil || !strings.Contains(err.Error(), "NOMAD_ADDR") {
			t.Errorf("address %q: %v", address, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{"1.6.3": "1.6.3", "v2.1.0-beta.1": "2.1.0", "1.10.0+ent": "1.10.0", "1.6": "", "1.x.3": "", "": ""} {
		got, err := nomad.ParseVersion(text)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q: %v (%v), want %q", text, got, err, want)
		}
	}
	ordered := []nomad.Version{{1, 6, 3}, {1, 6, 10}, {1, 10, 0}, {2, 0, 3}}
	for i, a := range ordered {
		for j, b := range ordered {
			if a.Before(b) != (i < j) {
				t.Errorf("%v before %v: %v", a, b, a.Before(b))
			}
		}
	}
}
