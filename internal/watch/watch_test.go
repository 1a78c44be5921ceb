package watch_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/internal/series"
	"temper/internal/watch"
)

func defaults(t *testing.T) config.Watch {
	t.Helper()
	run, err := config.Load("f", []byte("stages: [{name: a}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return run.Watch
}

// healthy is a step without trouble.
func healthy(n int) watch.Step {
	return watch.Step{
		Step: n, Stage: 1, Wall: 10 * time.Second, Train: rl.TrainMetrics{Entropy: 0.5, Updates: 1},
		Rollouts: series.Rollouts{RewardMean: 0.6, Groups: 16, GroupsAllCorrect: 2, Kept: 100, Trajectories: 256, ToolErrorRate: 0.1, ClipRatio: 0.05},
	}
}

// play gives the alerts by step, through the stored form of the state.
func play(t *testing.T, cfg config.Watch, steps int, change func(*watch.Step)) map[int][]watch.Alert {
	t.Helper()
	out := map[int][]watch.Alert{}
	var s watch.State
	for n := 1; n <= steps; n++ {
		step := healthy(n)
		change(&step)
		next, alerts := s.Next(cfg, step)
		if len(alerts) > 0 {
			out[n] = alerts
		}
		data, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		s = watch.State{}
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestEachRule begins once, at the step that completes it, and not a step before.
func TestEachRule(t *testing.T) {
	cfg := defaults(t)
	for name, c := range map[string]struct {
		rule   string
		at     int
		text   string
		change func(*watch.Step)
	}{
		"reward":        {watch.RuleReward, 8, "mean reward 0.200 is under 0.5 of the stage's best, 0.600 in step 1", func(s *watch.Step) { s.Rollouts.RewardMean = 0.2 }},
		"dropped":       {watch.RuleDropped, 6, "all 16 groups were dropped", func(s *watch.Step) { s.Rollouts.Kept, s.Rollouts.GroupsAllCorrect, s.Train.Updates = 0, 3, 0 }},
		"tool errors":   {watch.RuleToolErrors, 6, "95.0 % of tool calls fail", func(s *watch.Step) { s.Rollouts.ToolErrorRate = 0.95 }},
		"clip ratio":    {watch.RuleClipRatio, 6, "60.0 % of trajectories are cut", func(s *watch.Step) { s.Rollouts.ClipRatio = 0.6 }},
		"no entropy":    {watch.RuleEntropyMin, 6, "it has collapsed", func(s *watch.Step) { s.Train.Entropy = 1e-5 }},
		"noise":         {watch.RuleEntropyMax, 6, "it writes noise", func(s *watch.Step) { s.Train.Entropy = 9 }},
		"skipped":       {watch.RuleSkipped, 6, "all 4 updates were skipped", func(s *watch.Step) { s.Train.SkippedUpdates, s.Train.Updates = 4, 0 }},
		"infra errors":  {watch.RuleInfra, 4, "lost 5 of 256 trajectories", func(s *watch.Step) { s.Rollouts.InfraErrors = 5 }},
		"nothing wrong": {"", 0, "", func(*watch.Step) {}},
		"all solved": {"", 0, "", func(s *watch.Step) {
			s.Rollouts.Kept, s.Rollouts.GroupsAllCorrect, s.Train.Updates, s.Train.Entropy = 0, 16, 0, 0
		}},
		"few infra": {"", 0, "", func(s *watch.Step) { s.Rollouts.InfraErrors = 2 }},
	} {
		got := play(t, cfg, 12, func(s *watch.Step) {
			if s.Step > 3 {
				c.change(s)
			}
		})
		if c.rule == "" {
			if len(got) > 0 {
				t.Errorf("%s: alerts %v, want none", name, got)
			}
			continue
		}
		if len(got) != 1 || len(got[c.at]) != 1 || got[c.at][0].Rule != c.rule || !strings.Contains(got[c.at][0].Text, c.text) || got[c.at][0].Pause {
			t.Errorf("%s: alerts %+v, want one of %s in step %d saying %q, without a pause", name, got, c.rule, c.at, c.text)
		}
	}
}

// TestTroubleThatPassesBeginsAgain, and an interruption starts the count anew.
func TestTroubleThatPassesBeginsAgain(t *testing.T) {
	bad := map[int]bool{1: true, 2: true, 4: true, 5: true, 6: true, 7: true, 9: true, 10: true, 11: true}
	got := play(t, defaults(t), 12, func(s *watch.Step) {
		if bad[s.Step] {
			s.Rollouts.ToolErrorRate = 1
		}
	})
	if len(got) != 2 || len(got[6]) != 1 || len(got[11]) != 1 {
		t.Errorf("alerts %v, want one in step 6 and one in step 11", got)
	}
}

// TestSwitches: 0 switches a rule off, pause asks for a pause, and failures of the
// infrastructure never do.
func TestSwitches(t *testing.T) {
	cfg := defaults(t)
	collapse := func(s *watch.Step) { s.Rollouts.ToolErrorRate, s.Rollouts.InfraErrors = 1, 99 }
	cfg.ToolErrors, cfg.InfraErrors = 0, 0
	if got := play(t, cfg, 9, collapse); len(got) > 0 {
		t.Errorf("alerts %v of rules that are off", got)
	}
	cfg = defaults(t)
	cfg.Pause = true
	got := play(t, cfg, 9, collapse)
	if len(got[1]) != 1 || got[1][0].Pause || len(got[3]) != 1 || !got[3][0].Pause {
		t.Errorf("alerts %+v: want a pause for tool errors in step 3 and none for the infrastructure in step 1", got)
	}
}

// TestStageBeginsAnew: harder problems earn less, which is no collapse.
func TestStageBeginsAnew(t *testing.T) {
	got := play(t, defaults(t), 20, func(s *watch.Step) {
		if s.Step > 5 {
			s.Stage, s.Rollouts.RewardMean = 2, 0.1
		}
	})
	if len(got) > 0 {
		t.Errorf("alerts %v in a stage that begins with a low reward", got)
	}
}

// TestStallAfter goes by the median of the latest steps, and waits for some.
func TestStallAfter(t *testing.T) {
	cfg := defaults(t)
	var s watch.State
	for n := 1; n <= 40; n++ {
		step := healthy(n)
		step.Wall = time.Minute
		if n%10 == 0 {
			step.Wall = time.Hour // an outage is not the pace
		}
		s, _ = s.Next(cfg, step)
		want := 5 * time.Minute
		if n < 3 {
			want = 0
		}
		if got := s.StallAfter(cfg); got != want {
			t.Fatalf("after step %d: %s, want %s", n, got, want)
		}
	}
	if len(s.Walls) > 16 {
		t.Errorf("%d times are kept", len(s.Walls))
	}
	cfg.StalledSteps = 0
	if got := s.StallAfter(cfg); got != 0 {
		t.Errorf("switched off: %s", got)
	}
}

// TestARewardThatIsNoNumber is never the best one: the state is stored as JSON.
func TestARewardThatIsNoNumber(t *testing.T) {
	var s watch.State
	for i, reward := range []float64{math.NaN(), math.Inf(1), 0.5, math.NaN(), math.Inf(-1)} {
		s, _ = s.Next(defaults(t), watch.Step{
			Stage: 1, Step: i + 1, Rollouts: series.Rollouts{RewardMean: reward, Groups: 1, Kept: 1}, Train: rl.TrainMetrics{Updates: 1, Entropy: 1},
		})
		if _, err := json.Marshal(s); err != nil {
			t.Errorf("after a reward of %v: %v", reward, err)
		}
	}
	if s.BestReward != 0.5 || s.BestStep != 3 {
		t.Errorf("the best reward is %v of step %d, want 0.5 of step 3", s.BestReward, s.BestStep)
	}
}
