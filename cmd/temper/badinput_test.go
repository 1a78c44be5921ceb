package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/cli"
)

// TestBadInput runs command lines that must not start anything. Each answers
// with its exit code and with lines that name every mistake.
func TestBadInput(t *testing.T) {
	w := newWrongWorld(t)
	sft, problems := filepath.Join(w.dir, "sft.jsonl"), filepath.Join(w.dir, "problems.jsonl")
	w.write(sft, "{\"messages\": [\n")
	w.write(problems, `{"id":"a","env":"chase"}`+"\nnot json\n"+`{"id":"b","env":"chase","prompt":"x","answer":"y","zz":1}`+"\n")
	w.write(filepath.Join(w.dir, "bad.yaml"), "sedd: 3\nrl: {group_size: many}\nsft: {steps: 0}\nstages: [{name: a}]\n")
	w.write(filepath.Join(w.dir, "data.yaml"), "stages: [{name: a, data: {path: problems.jsonl}}]\n")
	good := "../../configs/ci.yaml"
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"unknown command", []string{"frob"}, cli.ExitUser, []string{`unknown command "frob"`}},
		{"unknown flag", []string{"up", "--frob"}, cli.ExitUser, []string{"unknown flag: --frob"}},
		{"ill-typed flag", []string{"run", "submit", "--seed", "-1"}, cli.ExitUser, []string{"--seed"}},
		{"extra argument", []string{"run", "list", "x"}, cli.ExitUser, []string{"temper run list"}},
		{"missing argument", []string{"run", "show"}, cli.ExitUser, []string{"temper run show", "1 arg"}},
		{"no configuration", []string{"run", "submit"}, cli.ExitUser, []string{"temper run submit", "1 arg"}},
		{"missing file", []string{"run", "submit", "none.yaml"}, cli.ExitUser, []string{"none.yaml", "no such file"}},
		{"bad addresses", []string{"run", "list", "--temporal", "here", "--sandbox", "1"}, cli.ExitUser,
			[]string{`TEMPORAL_ADDRESS): is "here"`, `TEMPER_SANDBOX_ADDRESS): is "1"`}},
		{"unreadable and impossible values", []string{"run", "submit", filepath.Join(w.dir, "bad.yaml"), "--set", "x", "--run-id", "a/b"}, cli.ExitUser,
			[]string{"bad.yaml:1:1: sedd: unknown key", "bad.yaml:2:18: rl.group_size: want a whole number", "bad.yaml:3:7: sft.steps: is 0",
				"--set x: want key=value", `run id "a/b"`}},
		{"impossible overrides", []string{"run", "submit", good, "--set", "rl.group_size=9", "--set", "stages[0].data.env=maze", "--set", "stages[2].until.steps=0"}, cli.ExitUser,
			[]string{"rl.group_size: is 9, above rl.rollouts_per_problem (8)", `stages[0].data.env: is "maze"`, "stages[2].until.steps: is 0"}},
		{"corrupt and missing data", []string{"run", "submit", filepath.Join(w.dir, "data.yaml"), "--set", "sft.data.path=none.jsonl"}, cli.ExitUser,
			[]string{"sft.data.path: ", w.path("none.jsonl"), "no such file", "stages[0].data.path: " + problems + ":1: missing or empty: prompt, answer",
				"stages[0].data.path: " + problems + ":2: ", "stages[0].data.path: " + problems + `:3: unknown field "zz"`}},
		{"corrupt dialogues", []string{"run", "submit", good, "--set", "sft.data.path=" + sft}, cli.ExitUser, []string{"sft.data.path: " + sft + ":1: "}},
		{"start from a run without policies", []string{"run", "submit", good, "--from", "nobody"}, cli.ExitUser, []string{`--from: run "nobody" has published no policy`}},
		{"start from a policy and a stated dimension", []string{"run", "submit", good, "--from", "a@1", "--set", "model.num_layers=1"}, cli.ExitUser,
			[]string{"model.num_layers: is set to 1, but the policy a@1 has its own"}},
		{"run id that exists", []string{"run", "submit", good, "--run-id", "taken"}, cli.ExitUser, []string{`run id "taken" exists already`}},
		{"run that does not exist", []string{"run", "show", "nobody"}, cli.ExitUser, []string{`no run "nobody"`}},
		{"evaluation of no run", []string{"eval", "nobody"}, cli.ExitUser, []string{`no run "nobody"`}},
		{"no server to submit to", []string{"run", "submit", good, "--temporal", w.closed}, cli.ExitSystem, []string{"no Temporal server answers at " + w.closed}},
		{"fork of nobody", []string{"run", "fork", "nobody", "--step", "last"}, cli.ExitUser, []string{`no run "nobody" is stored`}},
		{"fork of no checkpoint", []string{"run", "fork", "taken"}, cli.ExitUser, []string{"--step is missing"}},
		{"fork of everything at once", []string{"run", "fork", "a/b", "--step", "-1", "--priority", "9", "--run-id", "c d"}, cli.ExitUser,
			[]string{`--step: is "-1"`, `run id "a/b"`, `run id "c d"`, "--priority: is 9"}},
		{"fork with odd settings", []string{"run", "fork", "taken", "--step", "last", "--set", "x"}, cli.ExitUser, []string{"--set x: want key=value"}},
		{"amendment of nothing", []string{"run", "amend", "taken"}, cli.ExitUser, []string{"--set is missing"}},
		{"restart from nowhere", []string{"run", "restart", "taken", "--step", "worst"}, cli.ExitUser, []string{`--step: is "worst", want the number of a step, sft, best or last`}},
		{"priority out of range", []string{"run", "submit", good, "--priority", "6"}, cli.ExitUser, []string{"--priority: is 6, want 1 (first) to 5 (last)"}},
		{"no server to ask", []string{"run", "status", "x", "--temporal", w.closed}, cli.ExitSystem, []string{w.closed}},
		{"no server to work for", []string{"role", "control", "--temporal", w.closed}, cli.ExitSystem, []string{w.closed}},
		{"busy ports, no server binary, no python", []string{"up", "--run", good, "--run-id", "taken", "--set", "seed=x", "--python", "no-such-python", "--temporal", w.closed, "--sandbox", w.busy, "--ui", w.busy}, cli.ExitUser,
			[]string{w.busy + " is in use by another process: choose another with --sandbox", "--sandbox and --ui are both " + w.busy,
				`python "no-such-python" not found`, "temporald not found: build it with ./task build", `run id "taken" exists already`, "seed: want"}},
		{"flags of a run without one", []string{"up", "--set", "a=b"}, cli.ExitUser, []string{"--set is for a run"}},
		{"sandbox on a busy port without python", []string{"role", "sandbox", "--listen", w.busy, "--python", "no-such-python"}, cli.ExitUser, []string{w.busy + " is in use", "no-such-python"}},
		{"sandbox without a port", []string{"role", "sandbox", "--listen", "8765", "--python", "sh"}, cli.ExitUser, []string{`sandbox address "8765"`, "missing port"}},
		{"sandbox open to all", []string{"role", "sandbox", "--listen", ":0", "--python", "sh"}, cli.ExitUser, []string{"other machines can reach it and there is no token: set TEMPER_SANDBOX_TOKEN, or allow it with --insecure"}},
		{"sandbox with half a certificate", []string{"role", "sandbox", "--listen", w.other, "--tls-cert", sft, "--slots", "-1", "--drain", "-1s", "--python", "sh"}, cli.ExitUser,
			[]string{"--tls-key is missing", "--slots is below zero", "--drain is below zero"}},
		{"sandbox with a missing certificate", []string{"role", "sandbox", "--listen", w.other, "--tls-cert", "none.pem", "--tls-key", sft, "--python", "sh"}, cli.ExitUser,
			[]string{"TLS certificate: open none.pem: no such file"}},
		{"sandbox with text as certificate", []string{"role", "sandbox", "--listen", w.other, "--tls-cert", sft, "--tls-key", sft, "--python", "sh"}, cli.ExitUser, []string{"TLS certificate " + sft}},
		{"sandbox joining nobody", []string{"role", "sandbox", "--listen", w.other, "--python", "sh", "--join", "gateway"}, cli.ExitUser, []string{"TEMPER_SANDBOX_NODE_TOKEN is not set", `--join: node address "gateway": host:port is expected`}},
		{"sandbox that cannot be found", []string{"role", "sandbox", "--listen", w.other, "--python", "sh", "--join", "http://127.0.0.1:1", "--advertise", "here"}, cli.ExitUser, []string{`--advertise: is "here", want host:port`}},
		{"sandbox at every address", []string{"role", "sandbox", "--listen", ":0", "--insecure", "--python", "sh", "--join", "http://127.0.0.1:1"}, cli.ExitUser, []string{"--advertise is missing: :0 is no address"}},
		{"address without a gateway", []string{"role", "sandbox", "--listen", w.other, "--python", "sh", "--advertise", "here:1"}, cli.ExitUser, []string{"--advertise is for a gateway"}},
		{"sandbox with odd memory", []string{"role", "sandbox", "--memory", "24GB"}, cli.ExitUser, []string{`"24GB" for "--memory"`, "KiB, MiB, GiB or TiB"}},
		{"sandbox with an unknown layer", []string{"role", "sandbox", "--listen", w.other, "--require", "moat"}, cli.ExitSystem, []string{"required sandbox layers are off: moat (no such layer)"}},
		{"service with an unknown layer", []string{"up", "--sandbox-require", "moat", "--temporal", w.closed}, cli.ExitUser, []string{"--sandbox-require: required sandbox layers are off: moat (no such layer)"}},
		{"schedule with every mistake", []string{"schedule", "create", "a/b", "--config", "none.yaml", "--data", "none*.jsonl", "--set", "x", "--cron", "61 * * * *",
			"--cron", "CRON_TZ=Mars/Base 0 3 * * *", "--gate", "fun>=1", "--overlap", "maybe", "--catchup", "1s", "--every", "1ms"}, cli.ExitUser,
			[]string{`schedule id "a/b"`, "none.yaml: no such file", "no file matches " + w.path("none*.jsonl"), "--set x: want key=value", `minute: "61" is not 0 to 59`,
				`unknown time zone "Mars/Base"`, `unknown metric "fun"`, `overlap "maybe"`, "catch-up window 1s", "interval 1ms"}},
		{"schedule without anything", []string{"schedule", "create", "a"}, cli.ExitUser, []string{"--config is missing", "neither cron nor interval"}},
		{"schedule of corrupt problems", []string{"schedule", "create", "a", "--config", good, "--data", problems, "--every", "6h"}, cli.ExitUser, []string{problems + ":1: missing or empty: prompt, answer"}},
		{"schedule of data to come", []string{"schedule", "create", "a", "--config", good, "--data", "none*.jsonl", "--every", "6h", "--paused", "--temporal", w.closed}, cli.ExitSystem, []string{"no Temporal server answers at " + w.closed}},
		{"store without its server", []string{"up", "--store", "s3d://" + w.busy, "--ui", w.closed, "--temporal", w.closed, "--run", good, "--set", "seed=x"}, cli.ExitUser,
			[]string{w.busy + " is in use by another process: choose another with --store", "s3d not found: build it with ./task build:s3d", "seed: want"}},
		{"store on the network", []string{"up", "--store", "s3d://10.0.0.1:9000"}, cli.ExitUser, []string{"store (TEMPER_STORE): is no loopback address", "--tls"}},
		{"store of another home", []string{"run", "list", "--store", "s3d://" + w.closed}, cli.ExitSystem, []string{"no account of the S3 server", "name the same --home"}},
		{"store that does not answer", []string{"run", "show", "x", "--store", "minio://" + w.closed + "/b/p"}, cli.ExitSystem, []string{"credentials"}},
		{"instruments in the product", []string{"bench", "chaos", "--runs", "1"}, cli.ExitUser, []string{"bin/temper-bench: build it with ./task build:bench"}},
		{"unknown environment", []string{"data", "generate", "--env", "maze"}, cli.ExitUser, []string{`"maze"`, "chase, verbs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs strings.Builder
			if code := execute(tt.args, &out, &errs); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("stderr\n%swants %q", errs.String(), want)
				}
			}
			for line := range strings.Lines(errs.String()) {
				if !strings.HasPrefix(line, "temper: ") {
					t.Errorf("line without the program's name: %q", line)
				}
			}
		})
	}
}

// TestUnreachableNamedServer: a server that somebody else runs is checked
// before anything is started beside it.
func TestUnreachableNamedServer(t *testing.T) {
	w := newWrongWorld(t)
	t.Setenv("TEMPORAL_ADDRESS", w.closed)
	var out, errs strings.Builder
	code := execute([]string{"up", "--sandbox", w.other, "--python", "sh"}, &out, &errs)
	if code != cli.ExitSystem || !strings.Contains(errs.String(), "no Temporal server answers at "+w.closed) {
		t.Errorf("exit code %d, stderr %q; want %d and the address", code, errs.String(), cli.ExitSystem)
	}
	if out.Len() > 0 {
		t.Errorf("stdout %q: something was started", out.String())
	}
}

// wrongWorld is a home with a run in it, and addresses for better or worse.
type wrongWorld struct {
	t                   *testing.T
	dir                 string
	busy, closed, other string
}

func newWrongWorld(t *testing.T) *wrongWorld {
	t.Helper()
	w := &wrongWorld{t: t, dir: t.TempDir()}
	w.busy, _ = w.listen()
	var stop func()
	w.closed, stop = w.listen()
	stop()
	w.other, stop = w.listen()
	stop()
	home := filepath.Join(w.dir, "home")
	store, err := fileblob.New(filepath.Join(home, "store"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blob.PutBytes(t.Context(), store, "runs/taken/plan.json", []byte("{}"), blob.Always); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"TEMPER_HOME": home, "TEMPER_UI_ADDRESS": "", "TEMPER_SANDBOX_ADDRESS": w.other, "TEMPORAL_ADDRESS": "",
		"TEMPER_SANDBOX_TOKEN": "",
	} {
		t.Setenv(key, value)
	}
	return w
}

func (w *wrongWorld) listen() (addr string, stop func()) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	stop = func() { _ = l.Close() } // closed twice where the test closes it
	w.t.Cleanup(stop)
	return l.Addr().String(), stop
}

func (w *wrongWorld) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// path is where a relative name on the command line points to.
func (w *wrongWorld) path(name string) string {
	w.t.Helper()
	abs, err := filepath.Abs(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return abs
}
