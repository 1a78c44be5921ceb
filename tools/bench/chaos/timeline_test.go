package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTimelineGrowsAndShrinks: every role reaches its greatest number, and one of its
// members is left at the end.
func TestTimelineGrowsAndShrinks(t *testing.T) {
	gentle, killed, deaths, away, leftFirst := 0, 0, 0, 0, 0
	for run := range 40 {
		c := Config{Seed: 5}
		moves := c.Timeline(run)
		if d := cmp.Diff(moves, c.Timeline(run)); d != "" {
			t.Fatalf("two timelines of one seed differ:\n%s", d)
		}
		there := map[string]bool{"rollout-1": true, "node-1": true, "control-1": true, "gateway": true}
		most := map[string]int{}
		last := 0.0
		for _, m := range moves {
			if m.After < last || m.After > latest {
				t.Fatalf("run %d: %+v comes after %v", run, m, last)
			}
			last = m.After
			switch {
			case m.Join && there[m.Member], !m.Join && !there[m.Member]:
				t.Fatalf("run %d: %+v, and it is there: %v", run, m, there[m.Member])
			case m.Away > 0:
				away++
			case m.Join && m.Dies > 0:
				deaths++
			}
			if !m.Join && m.Gently {
				gentle++
			} else if !m.Join {
				killed++
			}
			if m.Away == 0 {
				there[m.Member] = m.Join
			}
			if m.Member == "rollout-1" && m.Away == 0 {
				leftFirst++
			}
			count := count(there)
			for role, n := range count {
				most[role] = max(most[role], n)
			}
		}
		if d := cmp.Diff(most, map[string]int{"rollout": Rollouts, "node": Nodes, "control": Controls, "gateway": 1}); d != "" {
			t.Errorf("run %d: greatest numbers (got -, want +)\n%s", run, d)
		}
		if d := cmp.Diff(count(there), map[string]int{"rollout": 1, "node": 1, "control": 1, "gateway": 1}); d != "" {
			t.Errorf("run %d: left at the end (got -, want +)\n%s", run, d)
		}
	}
	if gentle == 0 || killed == 0 || deaths == 0 || away != 120 || leftFirst < 20 {
		t.Errorf("%d left gently, %d by a kill, %d died while they joined, %d came back, %d first members left", gentle, killed, deaths, away, leftFirst)
	}
	if fmt.Sprint(Config{Seed: 5}.Timeline(0)) == fmt.Sprint(Config{Seed: 6}.Timeline(0)) {
		t.Error("two seeds have one timeline")
	}
}

func count(there map[string]bool) map[string]int {
	out := map[string]int{}
	for member, is := range there {
		role, _, _ := strings.Cut(member, "-")
		if is {
			out[role]++
		}
	}
	return out
}

// TestEveryStageOfLifeIsHit by the schedule, for every victim that has one.
func TestEveryStageOfLifeIsHit(t *testing.T) {
	got := map[string]bool{}
	for run := range 100 {
		for _, k := range (Config{Seed: 1, Kills: 6, Victims: ElasticVictims()}).Schedule(run) {
			got[k.Victim.Name+" "+string(k.Life)] = true
			if (k.Pause > 0) != (k.Life != Serving) {
				t.Fatalf("%+v", k)
			}
		}
	}
	for _, v := range ElasticVictims() {
		for _, life := range []Life{Serving, Starting, Draining} {
			want := v.Name != Interpreter || life == Serving
			if got[v.Name+" "+string(life)] != want {
				t.Errorf("%s is killed %s: %v, want %v", v.Name, life, !want, want)
			}
		}
	}
}
