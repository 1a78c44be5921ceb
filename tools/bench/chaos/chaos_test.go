package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
)

func put(t *testing.T, store blob.Store, key, data string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), store, key, []byte(data), blob.Always); err != nil {
		t.Fatal(err)
	}
}

func TestScheduleIsAFunctionOfTheSeed(t *testing.T) {
	c := Config{Seed: 3, Kills: 40, Victims: Victims()}
	text := func(c Config, run int) string {
		out := ""
		for i, k := range c.Schedule(run) {
			out += fmt.Sprint(k.Victim.Name, k.After, k.Delay, k.Pick, "\n")
			if k.After < 0 || k.After > latest || i > 0 && k.After < c.Schedule(run)[i-1].After {
				t.Fatalf("kill %d comes after %v of the run", i, k.After)
			}
		}
		return out
	}
	if first, second := text(c, 1), text(c, 1); first != second {
		t.Error("two schedules of one seed differ")
	}
	other := c
	other.Seed++
	if text(c, 1) == text(c, 2) || text(c, 1) == text(other, 1) {
		t.Error("runs or seeds share a schedule")
	}
	dealt := map[string]int{}
	for _, k := range c.Schedule(1) {
		dealt[k.Victim.Name]++
	}
	if len(dealt) != len(c.Victims) {
		t.Errorf("40 kills hit only %v", dealt)
	}
}

// TestClockIsNoDifference, and everything else is one.
func TestClockIsNoDifference(t *testing.T) {
	run := artifact.Layout{RunID: "r"}
	read := func(started string, loss, extra string) Contents {
		store := memblob.New()
		put(t, store, run.Step(1).Log(), `{"started": "`+started+`", "metrics": {"loss": `+loss+`, "timing_s/step": `+extra+`, "perf/throughput": `+extra+`}}`)
		put(t, store, run.Metrics(), `{"ended": "`+started+`", "loss": `+loss+`}`+"\n"+`{"loss": 2}`)
		put(t, store, "runs/r/events/000"+extra+"-stage-aa.json", `{"time": "`+started+`", "kind": "stage"}`)
		put(t, store, "runs/r/policies/v000001/model.safetensors", "weights "+loss)
		put(t, store, "runs/r/checkpoints/shards/x.safetensors", started)
		put(t, store, "runs/r/policies/v000001/pending/"+extra+".json", started)
		c, err := Read(t.Context(), store, run)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if diff := Compare(read("a", "0.125", "1"), read("b", "0.125", "2")); len(diff) != 0 {
		t.Errorf("runs that differ in time alone: %+v", diff)
	}
	diff := Compare(read("a", "0.124", "1"), read("a", "0.125", "1"))
	want := []Difference{
		{"metrics.jsonl", "changed", 1}, {"policies/v000001/model.safetensors", "changed", 1}, {"steps/000001/step.json", "changed", 1},
	}
	if d := cmp.Diff(diff, want); d != "" {
		t.Errorf("got -, want +\n%s", d)
	}
}

func TestMissingExtraAndDoubledObjects(t *testing.T) {
	run := artifact.Layout{RunID: "r"}
	store := memblob.New()
	put(t, store, "runs/r/events/1-stage-aa.json", `{}`)
	put(t, store, "runs/r/plan.json", `{}`)
	want, err := Read(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "runs/r/events/2-stage-aa.json", `{}`)
	if err := store.Delete(t.Context(), "runs/r/plan.json"); err != nil {
		t.Fatal(err)
	}
	got, err := Read(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	diff := Compare(want, got)
	if len(diff) != 2 || diff[0].Kind != "extra" || diff[0].Name != "events/stage-aa.json#2" || diff[1].Kind != "missing" {
		t.Errorf("%+v, want an event that was logged twice and a plan that is missing", diff)
	}
}

func TestMeasureTellsTheFirstObjectFromTheLongestPause(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	blows := []Blow{{at: at(1)}, {at: at(10)}}
	var beats []beat
	for _, s := range []float64{0.5, 1.5, 6, 7, 12, 13} {
		beats = append(beats, beat{at: at(s)})
	}
	measure(blows, beats)
	if blows[0].Progress != 0.5 || blows[0].Stall != 5 || blows[1].Progress != 2 || blows[1].Stall != 2 {
		t.Errorf("%+v, want 0.5 and 5 s, then 2 and 2 s", blows)
	}
}

// TestPausesOfAnUndisturbedRunAreNoCost: a kill in the middle of work that is long
// by itself has to answer for the rest alone.
func TestPausesOfAnUndisturbedRunAreNoCost(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	calm := Outcome{beats: []beat{{at: at(0)}, {at(10), []string{"sft"}}, {at(11), []string{"a", "b"}}}}
	out := Outcome{Blows: []Blow{{at: at(1)}, {at: at(13)}, {at: at(20)}}, beats: []beat{
		{at: at(0)}, {at(12.5), []string{"sft", "events/7"}}, {at(15), []string{"b"}}, {at(16), []string{"new"}}, {at(20.5), []string{"a"}},
	}}
	measure(out.Blows, out.beats)
	out.Beside(&calm)
	for i, want := range []Seconds{1.5, 3.5, 0} {
		if got := out.Blows[i].Extra; got != want {
			t.Errorf("kill %d added %v s, want %v", i, got, want)
		}
	}
}

// TestVictimsAreFoundByTheirCommandLines with sleeping processes that bear the names.
func TestVictimsAreFoundByTheirCommandLines(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func(name string, args ...string) int {
		path := filepath.Join(dir, name)
		_ = os.Remove(path) // of the call before
		if err := os.Symlink(shell, path); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		return cmd.Process.Pid
	}
	t.Chdir(dir)
	// The worker's child never becomes another program.
	for name, script := range map[string]string{"sandbox": "sleep 60 & wait\n", "worker": "(sleep 60; true) & wait\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"sandbox": start("temper", "sandbox"), "worker": start("temper", "worker"), "temporald": start("temporald", "worker")}
	for _, v := range Victims() {
		if v.Name == Interpreter {
			awaitInterpreter(t, v, want["sandbox"])
			continue
		}
		var pids []int
		for _, p := range v.Find(os.Getpid()) {
			pids = append(pids, p.PID)
		}
		if pid, ok := want[v.Name]; ok != (len(pids) == 1) || ok && pids[0] != pid {
			t.Errorf("%s: found %v, want %v", v.Name, pids, pid)
		}
	}
}

// awaitInterpreter waits for the child of the sandbox, which comes a little later.
func awaitInterpreter(t *testing.T, v Victim, sandbox int) {
	t.Helper()
	for range 500 {
		if found := v.Find(os.Getpid()); len(found) == 1 && found[0].Parent == sandbox {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("found %v, want the one child of %d", v.Find(os.Getpid()), sandbox)
}
