//go:build integration

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/workflows"
)

// steered is a run under commands of the command line.
type steered struct {
	*place
	run string
}

func (s *steered) status() (out workflows.RunStatus) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.temper(0, "run", "status", s.run, "--json")), &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *steered) awaitState(want workflows.State) workflows.RunStatus {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if now := s.status(); now.State == want {
			return now
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("run %s is not %s within a minute", s.run, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestSteeredRunKeepsItsBits pauses a run between steps and in the middle of
// one, saves on order, and compares it with a run that nobody touched; then it
// forks the run, which makes the same remaining steps.
func TestSteeredRunKeepsItsBits(t *testing.T) {
	p := newPlace(t)
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	submit := []string{"run", "submit", ciConfig, "--set", "checkpoint.keep=20", "--set", "sft.steps=50"}
	p.temper(0, append(submit, "--run-id", "calm", "--wait")...)

	s := &steered{p, "held"}
	p.temper(0, append(submit, "--run-id", s.run, "--priority", "2")...)
	follow := p.start("run", "follow", s.run)
	follow.await(`^stage: stage 1`, runTimeout)
	asked := time.Now()
	pause := append([]string{"run", "pause", s.run, "--now", "--reason", "lunch"}, p.flags()...)
	p.launchWith([]string{"TEMPER_OPERATOR=ann"}, "temper", pause...).end(0, time.Minute)
	now := s.awaitState(workflows.StatePaused)
	t.Logf("paused %v after the command, at step %d", time.Since(asked).Round(time.Millisecond), now.Step)
	if now.Reason != "lunch" || now.By != "ann" || now.Since == nil || now.Priority != 2 {
		t.Errorf("status %+v, want paused for lunch by ann since then, priority 2", now)
	}
	if out := p.temper(0, "run", "status", s.run); !strings.Contains(out, "paused") || !strings.Contains(out, "lunch") {
		t.Errorf("status in words:\n%s", out)
	}
	// On a busy machine the order comes after the first step.
	held := regexp.MustCompile(fmt.Sprintf(`(?m)^held +paused +%d/%d`, now.Step, ciSteps))
	if out := p.temper(0, "run", "list"); !regexp.MustCompile(`(?m)^calm +done`).MatchString(out) || !held.MatchString(out) {
		t.Errorf("run list:\n%s", out)
	}
	restingCosts(t)
	p.temper(0, "run", "checkpoint", s.run, "--reason", "to be sure")
	p.temper(2, "run", "pause", s.run)
	p.temper(2, "run", "skip-stage", s.run, "--stage", "nobody")
	p.temper(2, "run", "amend", s.run, "--set", "seed=2")
	p.temper(0, "run", "resume", s.run)
	follow.await(`^step +2/`, runTimeout)
	asked = time.Now()
	p.temper(0, "run", "pause", s.run)
	now = s.awaitState(workflows.StatePaused)
	t.Logf("paused %v after the command, behind step %d, which took %.1f s", time.Since(asked).Round(time.Millisecond), now.Step, now.Last.Seconds)
	p.temper(0, "run", "resume", s.run)
	follow.end(0, runTimeout)
	same(t, p, "calm", "held", 0)

	if out := p.temper(2, "run", "fork", "calm", "--step", "1"); !strings.Contains(out, "no checkpoint of step 1: name one of 0, 2, 3") {
		t.Errorf("fork of a missing step:\n%s", out)
	}
	p.temper(0, "run", "fork", "calm", "--step", "4", "--run-id", "twin", "--wait")
	same(t, p, "calm", "twin", 4)
	if found, _ := filepath.Glob(filepath.Join(p.home, "store/runs/twin/steps/*/step.json")); len(found) != ciSteps-4 {
		t.Errorf("the fork made %d steps, want %d", len(found), ciSteps-4)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 5*time.Second)
}

// same compares policies and trajectories of two runs from a step on.
func same(t *testing.T, p *place, want, got string, after int) {
	t.Helper()
	runs := filepath.Join(p.home, "store/runs")
	compared := 0
	for step := after + 1; step <= ciSteps; step++ {
		name := strconv.Itoa(1000000 + step)[1:]
		for _, pattern := range []string{"policies/v" + name + "/model.safetensors", "steps/" + name + "/trajectories/*.jsonl"} {
			files, err := filepath.Glob(filepath.Join(runs, want, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no %s of run %s (%v)", pattern, want, err)
			}
			for _, file := range files {
				a, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(strings.Replace(file, filepath.Join(runs, want), filepath.Join(runs, got), 1))
				if err != nil || scrub(a, want) != scrub(b, got) {
					t.Errorf("%s differs in run %s (%v)", strings.TrimPrefix(file, runs), got, err)
				}
				compared++
			}
		}
	}
	t.Logf("%d files of runs %s and %s compared", compared, want, got)
}

// scrub takes the run id out of a record.
func scrub(data []byte, run string) string {
	return strings.ReplaceAll(string(data), `"`+run+`/`, `"run/`)
}

// restingCosts measures what the service's processes burn while its only run is paused.
func restingCosts(t *testing.T) {
	t.Helper()
	before := ticks(t)
	const rest = 5 * time.Second
	time.Sleep(rest)
	after := ticks(t)
	total := 0.0
	for pid, was := range before {
		now, ok := after[pid]
		if !ok {
			continue
		}
		used := float64(now.ticks-was.ticks) / 100
		total += used
		t.Logf("paused: %-10s %.2f s of CPU in %v", was.name, used, rest)
		if was.name != "temporald" && used > 0.05*rest.Seconds() {
			t.Errorf("%s (pid %d) uses %.2f s of CPU in %v while the run is paused", was.name, pid, used, rest)
		}
	}
	t.Logf("paused: all %.2f s of CPU in %v", total, rest)
}

type usage struct {
	name  string
	ticks int
}

// ticks are the hundredths of a second that each descendant of the test has used.
func ticks(t *testing.T) map[int]usage {
	t.Helper()
	out := map[int]usage{}
	self := unix.Getpid()
	parents := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended
		}
		text := string(data)
		open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		pid, _ := strconv.Atoi(strings.TrimSpace(text[:open]))
		fields := strings.Fields(text[end+1:])
		parents[pid], _ = strconv.Atoi(fields[1])
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		out[pid] = usage{name: role(pid, text[open+1:end]), ticks: user + system}
	}
	for pid := range out {
		at := pid
		for at > 1 && at != self {
			at = parents[at]
		}
		if at != self || pid == self {
			delete(out, pid)
		}
	}
	return out
}

// role is the subcommand of a process of this service.
func role(pid int, name string) string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if parts := strings.Split(string(data), "\x00"); err == nil && name == "temper" && len(parts) > 1 {
		return parts[1]
	}
	return name
}
