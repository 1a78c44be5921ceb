//go:build integration

package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/internal/inference/remote"
	"temper/internal/run/runtest"
)

// engine starts an engine of the run "twin" and returns it.
func (s *scattered) engine(name string, more ...string) *running {
	s.t.Helper()
	args := append([]string{"role", "engine", "--run", "twin", "--name", name, "--wait", "2m"}, more...)
	return (&place{t: s.t}).launch("temper", s.command(args...)...)
}

// answering waits until an engine can be found and returns its address.
func (r *running) answering() (address string) {
	r.t.Helper()
	m := r.await(`^\{"address":"http://([^"]+)","name":"[^"]+","ready":true,"role":"engine","run":"twin"\}`, 2*time.Minute)
	return m[1]
}

// TestEnginesOfOtherProcesses makes the pipeline's run with a rollout worker whose two
// engines are processes of their own. One of them is killed in the middle of a step and
// comes back; the bits are those of `temper up` with one process that does all.
func TestEnginesOfOtherProcesses(t *testing.T) {
	s := scatter(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(engineToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.role("control")
	s.role("trainer")
	rollout := s.role("rollout", "--engines", "registry", "--engine-token-file", token)
	submit := (&place{t: t}).launch("temper", s.command("run", "submit", ciConfig, "--run-id", "twin", "--wait")...)
	one, two := s.engine("one", "--token-file", token), s.engine("two", "--token-file", token)
	first, second := one.answering(), two.answering()
	if code, body := ask(t, first, "/readyz"); code != http.StatusOK {
		t.Errorf("engine is not ready: %d %s", code, body)
	}
	if code, _ := ask(t, first, "/v1/status"); code != http.StatusUnauthorized {
		t.Errorf("a request without the token is answered with %d, want %d", code, http.StatusUnauthorized)
	}
	thief := s.engine("one", "--token-file", token)
	awaitTokens(t, second, 200)
	awaitTokens(t, first, 200)
	two.signal(syscall.SIGKILL)
	two.end(-1, time.Minute)
	s.steer("pause", "twin") // else the run may end before the engine is back
	thief.await(`the name of the engine is taken: "one" of run twin is .* at http://`+regexp.QuoteMeta(first), time.Minute)
	thief.end(1, time.Minute)
	two = s.engine("two", "--token-file", token)
	second = two.answering()
	s.steer("resume", "twin")
	awaitTokens(t, second, 50)
	submit.end(0, 2*runTimeout)
	_, metrics := ask(t, rollout, "/metrics")
	if !strings.Contains(metrics, `rl_member_engines{state="joined"} 2`) {
		t.Errorf("two engines have joined, the rollout worker shows:\n%s", metrics)
	}
	s.all = append(s.all, one, two)
	s.stop()
	noOrphans(t, 5*time.Second)
	want := calmTwin(t)
	// The calm run was not paused, which is an event, and counted in those after it.
	diff := slices.DeleteFunc(runtest.CompareContents(want, contents(t, s.objects)), func(d runtest.Difference) bool { return strings.HasPrefix(d.Name, "events/") })
	if len(diff) > 0 {
		t.Errorf("the run of engines in other processes differs: %+v", diff)
	}
}

// steer sends a command to a run.
func (s *scattered) steer(command, run string) {
	s.t.Helper()
	(&place{t: s.t}).launch("temper", s.command("run", command, run)...).end(0, time.Minute)
}

// engineToken is what the engines of these tests ask for.
const engineToken = "e2e-engine"

// awaitTokens waits until an engine has sampled so many tokens.
func awaitTokens(t *testing.T, address string, want int64) {
	t.Helper()
	for end := time.Now().Add(2 * runTimeout); ; time.Sleep(20 * time.Millisecond) {
		var st remote.Status
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+remote.PathStatus, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+engineToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&st)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s (%v)", address, resp.Status, err)
		}
		if st.Tokens >= want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has sampled %d tokens, want %d", address, st.Tokens, want)
		}
	}
}
