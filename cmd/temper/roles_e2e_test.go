//go:build integration

package main_test

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/proc"
	"temper/internal/run/runtest"
)

// scattered is a service whose roles are processes of their own, each with a home of
// its own, as on machines that share nothing but the network.
type scattered struct {
	t                        *testing.T
	temporal, sandbox, store string
	objects                  string // folder of the S3 server's objects
	all                      []*running
}

// scatter starts the servers: Temporal, S3 and a sandbox.
func scatter(t *testing.T) *scattered {
	t.Helper()
	addrs, err := proc.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	// The servers of this test have no other clients.
	t.Setenv("AWS_ACCESS_KEY_ID", "e2e")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
	s3 := t.TempDir()
	s := &scattered{
		t: t, temporal: addrs[0], sandbox: addrs[1], objects: filepath.Join(s3, "buckets", "temper"),
		store: "s3://temper?endpoint=http://" + addrs[2] + "&path_style=true&region=us-east-1",
	}
	_, port, err := net.SplitHostPort(s.temporal)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t}
	for _, server := range []*running{
		p.launch("temporald", "--db", filepath.Join(t.TempDir(), "temporal.db"), "--port", port, "--ui-port", "0"),
		p.launch("s3d", "--dir", s3, "--listen", addrs[2], "--bucket", "temper"),
		p.launch("temper", "role", "sandbox", "--listen", s.sandbox),
	} {
		server.await(`"ready":true`, 2*time.Minute)
		s.all = append(s.all, server)
	}
	return s
}

// command adds where everything is, and a new home.
func (s *scattered) command(args ...string) []string {
	return append(args, "--home", s.t.TempDir(), "--store", s.store, "--temporal", s.temporal, "--sandbox", s.sandbox, "--ui", "")
}

// role starts a role and returns where it answers for its health.
func (s *scattered) role(args ...string) (address string) {
	s.t.Helper()
	r := (&place{t: s.t}).launch("temper", s.command(append([]string{"role"}, args...)...)...)
	m := r.await(`^\{"address":"([^"]+)","ready":true,"role":"`+args[0]+`"\}`, time.Minute)
	s.all = append(s.all, r)
	return m[1]
}

// stop ends every process in the reverse order of its start.
func (s *scattered) stop() {
	s.t.Helper()
	for i := len(s.all) - 1; i >= 0; i-- {
		s.all[i].signal(syscall.SIGTERM)
		s.all[i].end(0, 30*time.Second)
	}
}

// ask returns status and body of a question to a role.
func ask(t *testing.T, address, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + address + path) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// sampledTokens is what the engines of a role have sampled.
func sampledTokens(t *testing.T, address string) float64 {
	t.Helper()
	_, text := ask(t, address, "/metrics")
	m := regexp.MustCompile(`(?m)^rl_engine_tokens_total\{kind="sampled"\} (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s shows no tokens:\n%s", address, text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// twin is what `temper up` leaves of the run "twin" when one process trains and samples.
var twin struct {
	once   sync.Once
	left   runtest.Contents
	shards map[string]blob.Info
}

// calmTwin makes that run once for all tests that compare with it.
func calmTwin(t *testing.T) runtest.Contents {
	t.Helper()
	twin.once.Do(func() {
		calm := newPlace(t)
		calm.start("up", "--run", ciConfig, "--run-id", "twin", "--exit").end(0, 2*runTimeout)
		store := filepath.Join(calm.home, "store")
		twin.shards = shards(t, store)
		twin.left = contents(t, store)
	})
	if twin.left == nil {
		t.Fatal("the run to compare with has failed in another test")
	}
	return twin.left
}

// TestEveryRoleAlone makes the pipeline's run with a control worker, a trainer and two
// rollout workers that share nothing but the servers, and wants the bits of `temper
// up` with one process that does both.
func TestEveryRoleAlone(t *testing.T) {
	s := scatter(t)
	roles := map[string]string{
		"control":   s.role("control", "--rollout-shards", "2"),
		"trainer":   s.role("trainer"),
		"rollout 1": s.role("rollout"), "rollout 2": s.role("rollout"),
	}
	for name, address := range roles {
		if code, body := ask(t, address, "/readyz"); code != http.StatusOK {
			t.Errorf("%s is not ready: %d %s", name, code, body)
		}
		if _, text := ask(t, address, "/metrics"); !strings.Contains(text, "temporal_num_pollers{") {
			t.Errorf("%s shows nothing of its polls:\n%s", name, text)
		}
	}
	submit := (&place{t: t}).launch("temper", s.command("run", "submit", ciConfig, "--run-id", "twin", "--wait")...)
	submit.end(0, 2*runTimeout)
	for _, name := range []string{"rollout 1", "rollout 2"} {
		if n := sampledTokens(t, roles[name]); n == 0 {
			t.Errorf("%s sampled nothing", name)
		}
	}
	s.stop()
	noOrphans(t, 5*time.Second)

	want := calmTwin(t)
	if diff := runtest.CompareContents(want, contents(t, s.objects)); len(diff) > 0 {
		t.Errorf("the run of scattered roles differs: %+v", diff)
	}
	policies, groups := 0, 0
	for name := range want {
		if strings.HasSuffix(name, "model.safetensors") {
			policies++
		}
		if strings.Contains(name, "/trajectories/") {
			groups++
		}
	}
	if policies != ciSteps+1 || groups < 4*ciSteps {
		t.Errorf("%d policies and %d groups were compared, want %d and at least %d", policies, groups, ciSteps+1, 4*ciSteps)
	}
}
