package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"temper/internal/cli"
)

// answering is a server of the model "m" that always says the same. asked counts questions.
func answering(t *testing.T, said string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
			return
		}
		asked.Add(1)
		_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": %q}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n", said)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// evaluation runs temper eval without tools.
func evaluation(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := evalCommand(place())
	var text bytes.Buffer
	cmd.SetArgs(append([]string{"--no-tools"}, args...))
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return text.String(), err
}

// problemFile is a file with one problem a line, of these answers.
func problemFile(t *testing.T, answers ...string) string {
	t.Helper()
	var lines strings.Builder
	for i, a := range answers {
		fmt.Fprintf(&lines, `{"id": "p%d", "env": "math", "prompt": "question %d?", "answer": %q}`+"\n", i, i, a)
	}
	name := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := os.WriteFile(name, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEvalOfAnotherServer with the same model's name is refused by the folder of the first,
// and prints none of its figures.
func TestEvalOfAnotherServer(t *testing.T) {
	a, _ := answering(t, `\boxed{4}`)
	b, asked := answering(t, `\boxed{5}`)
	t.Chdir(t.TempDir())
	set := "s=" + problemFile(t, "4")
	if out, err := evaluation(t, "--url", a, "--set", set); err != nil || !strings.Contains(out, "| s | 1 | 1 | 100.00 ") {
		t.Fatalf("%s: %v", out, err)
	}
	out, err := evaluation(t, "--url", b, "--set", set)
	if cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), "server \""+a+"\", now \""+b+"\"") || strings.Contains(out, "100.00") {
		t.Errorf("another server: %s: %v", out, err)
	}
	if out, err = evaluation(t, "--url", b, "--set", set, "--out", "b"); err != nil || !strings.Contains(out, "| s | 1 | 1 | 0.00 ") || asked.Load() != 1 {
		t.Errorf("in a folder of its own: %s: %v", out, err)
	}
}

// TestEvalOfAnotherModel that takes the place of the first, under its name and address, is
// refused by the folder of the first.
func TestEvalOfAnotherModel(t *testing.T) {
	root, asked := "/models/a", 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path == "/v1/models" {
			_, _ = fmt.Fprintf(w, `{"object": "list", "data": [{"id": "m", "object": "model", "created": %d, "owned_by": "vllm", "root": %q, "parent": null, "max_model_len": 4096}]}`, asked, root)
			return
		}
		_, _ = fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"4\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	t.Chdir(t.TempDir())
	args := []string{"--url", s.URL, "--set", "s=" + problemFile(t, "4")}
	for range 2 { // the time in the list is another one each time
		if out, err := evaluation(t, args...); err != nil {
			t.Fatal(out, err)
		}
	}
	root = "/models/b"
	want := `eval-m: its samples are of a model of which the server said root "/models/a", now "/models/b"; name another folder with --out, or, if it is the same model, take "root" out of the card in eval-m/settings.json`
	if out, err := evaluation(t, args...); cli.ExitCode(err) != 1 || err.Error() != want {
		t.Errorf("%s: %v, want %s", out, err, want)
	}
	data, err := os.ReadFile("eval-m/settings.json")
	var settings map[string]any
	if err == nil {
		err = json.Unmarshal(data, &settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(settings["source"].(map[string]any)["card"].(map[string]any), "root")
	if data, err = json.Marshal(settings); err == nil {
		err = os.WriteFile("eval-m/settings.json", data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := evaluation(t, args...); err != nil {
		t.Errorf("after what the error says: %s: %v", out, err)
	}
}

// TestReverifyTakesTheSettings of the folder where no flag states them.
func TestReverifyTakesTheSettings(t *testing.T) {
	url, asked := answering(t, `<answer>4</answer>`)
	set := "s=" + problemFile(t, "4", "5")
	t.Chdir(t.TempDir())
	if out, err := evaluation(t, "--url", url, "--set", set, "--mode", "env", "--temperature", "1", "--rollouts", "2", "--eval-seed", "7", "--max-tokens", "50"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := evaluation(t, "--url", url, "--set", set, "--mode", "env", "--temperature", "1", "--rollouts", "4", "--eval-seed", "7", "--max-tokens", "50"); err != nil {
		t.Fatal(out, err)
	}
	before := asked.Load()
	check := func(name, want string, args ...string) {
		t.Helper()
		out, err := evaluation(t, append([]string{"--url", url, "--out", "eval-m", "--reverify"}, args...)...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%s: want %q:\n%s", name, want, out)
		}
	}
	out, err := evaluation(t, "--url", url, "--out", "eval-m", "--reverify", "--set", set)
	if err != nil || !strings.Contains(out, "8 samples judged again, 0 verdicts changed") || !strings.Contains(out, "# Evaluation of m\n") {
		t.Fatalf("%s: %v", out, err)
	}
	for _, part := range []string{"| s | 2 | 4 | 50.00 (", "| 1 | 10 | 50 | env |"} {
		if !strings.Contains(out, part) {
			t.Errorf("the report lacks %q:\n%s", part, out)
		}
	}
	check("another mode", "| 1 | 10 | 50 | integer |", "--set", set, "--mode", "integer")
	check("fewer samples", "| s | 2 | 3 | 50.00 (", "--set", set, "--rollouts", "3")
	check("what the samples have", "8 samples judged again", "--set", set, "--temperature", "1", "--eval-seed", "7")
	check("another temperature", "s: its samples were made with other settings", "--set", set, "--temperature", "0.5")
	check("another seed", "has samples of --eval-seed 7, not 8", "--set", set, "--eval-seed", "8")
	check("another model", `samples of the model "m", not of "x"`, "--set", set, "--name", "x")
	check("another file", "is not the file that its samples answer", "--set", "s="+problemFile(t, "4", "6"))
	check("another set", "z: the folder has no samples of it", "--set", "z="+problemFile(t, "4"))

	if err := os.Remove("eval-m/settings.json"); err != nil {
		t.Fatal(err)
	}
	check("a folder without settings", "eval-m has no settings: set s is taken to have 4 samples of each problem at temperature 1, judged by env", "--set", set,
		"--mode", "env", "--rollouts", "4", "--temperature", "1")
	if got := asked.Load(); got != before {
		t.Errorf("%d samples were made", got-before)
	}
	if _, err := evaluation(t, "--url", url, "--reverify", "--set", set); cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), "name the folder with --out") {
		t.Errorf("no folder: %v", err)
	}
}

// TestAgainstOtherProblems of the same name and ids is refused.
func TestAgainstOtherProblems(t *testing.T) {
	url, _ := answering(t, `\boxed{4}`)
	t.Chdir(t.TempDir())
	set := "s=" + problemFile(t, "4")
	for _, args := range [][]string{{"--out", "a", "--set", set}, {"--out", "b", "--set", "s=" + problemFile(t, "6")}} {
		if out, err := evaluation(t, append([]string{"--url", url}, args...)...); err != nil {
			t.Fatal(out, err)
		}
	}
	out, err := evaluation(t, "--url", url, "--out", "a", "--set", set, "--against", "b")
	if cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), "set s has other problems there") {
		t.Errorf("%s: %v", out, err)
	}
	if err := os.Remove("b/settings.json"); err != nil {
		t.Fatal(err)
	}
	if out, err := evaluation(t, "--url", url, "--out", "a", "--set", set, "--against", "b"); err != nil || !strings.Contains(out, "## Against b") {
		t.Errorf("a folder without settings: %s: %v", out, err)
	}
}

// TestAgainstNothing: a folder that is not there is told before a sample is made.
func TestAgainstNothing(t *testing.T) {
	url, asked := answering(t, `\boxed{4}`)
	t.Chdir(t.TempDir())
	_, err := evaluation(t, "--url", url, "--set", "s="+problemFile(t, "4"), "--against", "eval-none")
	if cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), "eval-none") || asked.Load() != 0 {
		t.Errorf("%d questions were asked: %v", asked.Load(), err)
	}
}

// TestEqualSamples: more than one sample at temperature 0 is refused for what a set comes
// to, not for the flags alone.
func TestEqualSamples(t *testing.T) {
	url, _ := answering(t, `\boxed{4}`)
	t.Chdir(t.TempDir())
	file := problemFile(t, "4")
	for _, c := range []struct{ args, want string }{
		{"--set aime24=F --rollouts 3", ""},
		{"--set aime24=F --out a", ""},
		{"--set aime24=F --temperature 0 --rollouts 1 --out b", ""},
		{"--set aime24=F --temperature 0", "--set aime24: 16 samples at temperature 0"},
		{"--set s=F --rollouts 3", "--set s: 3 samples at temperature 0"},
		{"--set s=F --rollouts 3 --temperature 0.1 --out c", ""},
		{"--set gsm8k=F --rollouts 2", "--set gsm8k: 2 samples at temperature 0"},
	} {
		args := append([]string{"--url", url}, strings.Fields(strings.ReplaceAll(c.args, "=F", "="+file))...)
		out, err := evaluation(t, args...)
		if c.want == "" && err != nil || c.want != "" && (cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: want %q: %v\n%s", c.args, c.want, err, out)
		}
	}
}
