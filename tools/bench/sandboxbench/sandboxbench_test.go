package sandboxbench

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
	"temper/tools/bench/loadgen"
)

func TestContendTakesTurnsAndMedians(t *testing.T) {
	var order []string
	made := func(name string, pause time.Duration, lose bool) Contender {
		var n atomic.Int64
		return Contender{Name: name, Target: loadgen.FromExecutor(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			time.Sleep(pause)
			if n.Add(1); lose && n.Load() > 40 {
				return sandbox.Result{}, sandbox.ErrUnavailable
			}
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2"}, nil
		}})}
	}
	cells, err := Contend(t.Context(), []Contender{made("fast", time.Millisecond, false), made("slow", 4*time.Millisecond, true)}, Plan{
		Programs: []loadgen.Program{loadgen.Trivial()}, Levels: []int{4, 400000}, Rounds: 3, MinCalls: 40, Settle: time.Nanosecond, Budget: time.Second,
		Done: func(r Round) { order = append(order, r.Contender) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "fast slow fast slow fast slow" {
		t.Errorf("order %q", got)
	}
	if len(cells) != 4 || cells[2].Skipped == "" || cells[3].Skipped == "" {
		t.Fatalf("cells %+v, want a second level that is skipped", cells)
	}
	if c := cells[0]; c.Rounds != 3 || c.Lost != 0 || c.RateRatio != 1 {
		t.Errorf("first: %+v", c)
	}
	if c := cells[1]; c.Lost != 40 || c.Failure == "" {
		t.Errorf("second: %+v, want 40 lost", c)
	}
	broken := Contender{Name: "broken", Target: loadgen.FromExecutor(&sandboxtest.Fake{})}
	if _, err := Contend(t.Context(), []Contender{broken}, Plan{Settle: time.Nanosecond}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a service that answers wrongly at ease: %v", err)
	}
}

func TestGrowthToleratesNoiseOnly(t *testing.T) {
	base := Inventory{Processes: 20, Descriptors: 200, Mounts: 60, Cgroups: 30, NodeRSS: 100 << 20}
	noisy := base
	noisy.Processes, noisy.Descriptors, noisy.NodeRSS = 23, 210, 110<<20
	if got := append(growth(base, noisy, false), growth(base, noisy, true)...); len(got) > 0 {
		t.Errorf("noise is taken for a leak: %v", got)
	}
	for name, change := range map[string]func(*Inventory){
		"processes": func(i *Inventory) { i.Processes += 30 }, "descriptors": func(i *Inventory) { i.Descriptors += 100 },
		"mounts": func(i *Inventory) { i.Mounts += 10 }, "cgroups": func(i *Inventory) { i.Cgroups += 10 },
		"/dev/shm": func(i *Inventory) { i.SharedFiles++ }, "strange": func(i *Inventory) { i.Strangers += 5 },
	} {
		leaky := base
		change(&leaky)
		if got := growth(base, leaky, false); len(got) != 1 || !strings.Contains(got[0], name) {
			t.Errorf("%s: %v", name, got)
		}
	}
	fat := base
	fat.NodeRSS += 40 << 20
	if got := growth(base, fat, true); len(got) != 1 {
		t.Errorf("memory: %v", got)
	}
}

func TestSoakReportJudges(t *testing.T) {
	report := SoakReport{}
	for i := range tenths {
		tenth := Tenth{Number: i + 1, Figures: loadgen.Figures{PerSecond: 100 - float64(i)}}
		tenth.Inventory.Descriptors = 100 * i
		report.Tenths = append(report.Tenths, tenth)
	}
	report.judge()
	if report.Steady() || len(report.Leaks) != 1 || report.Drift > -.08 || report.Drift < -.1 {
		t.Errorf("leaks %v, drift %v; want descriptors and -9 %%", report.Leaks, report.Drift)
	}
	for i := range report.Tenths {
		report.Tenths[i].Inventory.Descriptors, report.Tenths[i].Figures.PerSecond = 100, 100
	}
	report.Before.Descriptors = 100
	if report.judge(); !report.Steady() {
		t.Errorf("an even soak is not steady: %+v", report)
	}
}

// A service that leaks is found: forty descriptors stay open.
func TestInventorySeesALeak(t *testing.T) {
	var kept []*os.File
	exec := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2"}, nil
	}}
	cfg := SoakConfig{Target: loadgen.FromExecutor(exec), PID: os.Getpid(), Calls: 20, Concurrency: 1, Mix: loadgen.Only(loadgen.Trivial())}
	s := newSurveyor(os.Getpid())
	before, err := s.survey()
	if err != nil {
		t.Fatal(err)
	}
	if before.Processes < 1 || before.Mounts < 1 || before.Descriptors < 3 || before.NodeRSS < 1<<20 {
		t.Errorf("inventory %+v", before)
	}
	if _, err := s.putLoad(t.Context(), cfg, 1, 20); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, f)
	}
	after, err := s.survey()
	if err != nil {
		t.Fatal(err)
	}
	// Other tests may change the machine meanwhile, but not this process.
	seen := func(g string) bool { return strings.HasPrefix(g, "descriptors") }
	if got := growth(before, after, false); !slices.ContainsFunc(got, seen) {
		t.Errorf("growth %v, want descriptors", got)
	}
	for _, f := range kept {
		f.Close()
	}
}

func TestChildrenStartAndEnd(t *testing.T) {
	ready := ChildConfig{Name: "sh", Args: []string{"-c", `echo '{"ready":true,"address":"127.0.0.1:1"}'; exec sleep 60`}}
	c, err := StartChild(t.Context(), "/bin/sh", ready)
	if err != nil {
		t.Fatal(err)
	}
	if c.Address != "127.0.0.1:1" {
		t.Errorf("address %q", c.Address)
	}
	if err := c.Kill(); err != nil || syscall.Kill(c.PID(), 0) == nil {
		t.Errorf("kill: %v, or the process is still there", err)
	}
	_, err = StartChild(t.Context(), "/bin/sh", ChildConfig{Name: "node 1", Args: []string{"-c", "echo no python >&2; exit 1"}})
	if err == nil || !strings.Contains(err.Error(), "node 1") || !strings.Contains(err.Error(), "no python") {
		t.Errorf("a child that ends: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := StartChild(ctx, "/bin/sh", ChildConfig{Name: "mute", Args: []string{"-c", "exec sleep 60"}}); err == nil {
		t.Error("a child that is never ready was taken for ready")
	}
}
