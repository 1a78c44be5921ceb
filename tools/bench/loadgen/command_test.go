package loadgen_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"temper/sandbox"
	"temper/tools/bench/loadgen"
)

func TestCommandIsStartedForEachCall(t *testing.T) {
	target := loadgen.FromCommand("sh", "-c")
	calls := []loadgen.Call{
		{ID: "a", Program: loadgen.Program{Code: "cat", Stdin: "in\n", Want: "in"}},
		{ID: "b", Program: loadgen.Program{Code: "exit 3", Status: sandbox.StatusError}},
		{ID: "c", Program: loadgen.Program{Code: "echo other", Want: "own"}},
		{ID: "d", Program: loadgen.Program{Code: "exit 3"}},
	}
	got := target.Do(t.Context(), calls)
	for i, want := range []loadgen.Class{loadgen.Good, loadgen.Good, loadgen.Wrong, loadgen.Wrong} {
		if got[i].Class != want {
			t.Errorf("%s: %+v, want class %d", calls[i].ID, got[i], want)
		}
	}
	if got := loadgen.FromCommand("/nothing/here").Do(t.Context(), calls[:1]); got[0].Class != loadgen.Lost {
		t.Errorf("a command that is not there: %+v, want lost", got[0])
	}
}

func TestOwnCPUHoldsChildren(t *testing.T) {
	cpu := loadgen.CPU{Own: true}
	f, err := loadgen.Measure(t.Context(), loadgen.FromCommand("sh", "-c"), loadgen.Load{
		Concurrency: 1, Calls: 2, Mix: loadgen.Only(loadgen.Program{Code: "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"}),
	}, cpu)
	if err != nil || f.Failed > 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	if !cpu.Known() || f.CPU < 5*time.Millisecond {
		t.Errorf("processor time %v of a shell that counts to 100,000", f.CPU)
	}
}

func TestGoJudgeAnswers(t *testing.T) {
	answer := `[{"status":"Accepted","exitStatus":0,"time":13322590,"runTime":40817872,"files":{"stderr":"","stdout":"2\n"}}]`
	var asked map[string][]map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/run" {
			t.Errorf("%s %v", r.URL, err)
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	target, err := loadgen.GoJudge(server.URL, []string{"python3", "-c"}, []string{"PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	call := []loadgen.Call{{ID: "a", Program: loadgen.Trivial()}}
	if got := target.Do(t.Context(), call)[0]; got.Class != loadgen.Good || got.CPU != 13322590 {
		t.Errorf("got %+v", got)
	}
	if args := asked["cmd"][0]["args"].([]any); len(args) != 3 || args[2] != "print(1+1)" {
		t.Errorf("asked for %v", args)
	}
	answer = `[{"status":"Internal Error","error":"no container"}]`
	if got := target.Do(t.Context(), call)[0]; got.Class != loadgen.Lost {
		t.Errorf("an internal error: %+v, want lost", got)
	}
	answer = `[{"status":"Nonzero Exit Status","exitStatus":1,"files":{"stderr":"x"}}]`
	if got := target.Do(t.Context(), call)[0]; got.Class != loadgen.Wrong {
		t.Errorf("a program that fails: %+v, want wrong", got)
	}
}
