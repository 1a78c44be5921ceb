package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"temper/internal/inference/scheduler"
)

// lengths are those of two problems' trajectories, of so many turns each.
func lengths(short, long int) map[string][][]int {
	out := map[string][][]int{}
	for range 20 {
		out["short"] = append(out["short"], []int{short / 2, short})
		out["long"] = append(out["long"], []int{long / 3, long / 2, long - 50, long})
	}
	return out
}

// TestRecalledLengthsAreForecast at once: what takes long starts first, as it does in a
// scheduler that has seen those trajectories itself, and reserves as much.
func TestRecalledLengthsAreForecast(t *testing.T) {
	history := lengths(60, 900)
	seen, told, fresh := newFleet(t, nil), newFleet(t, nil), newFleet(t, nil)
	for _, problem := range []string{"short", "long"} {
		told.do(scheduler.Recall{Run: "r", Problem: problem, Stage: 0, Limit: 1000, Turns: history[problem]})
	}
	seen.do(scheduler.Join{Engine: "e", Capacity: 1 << 20})
	for _, problem := range []string{"short", "long"} {
		for i, turns := range history[problem] {
			id := fmt.Sprint(problem, i)
			seen.submit(trajectory(id, problem))
			for j, length := range turns {
				seen.do(scheduler.Pause{ID: id, Attempt: seen.attempt[id], Context: 100 + length})
				if j < len(turns)-1 {
					seen.do(scheduler.Resume{ID: id, Attempt: seen.attempt[id], Context: 100 + length})
				}
			}
			seen.finish(id, 100+turns[len(turns)-1])
		}
	}
	seen.do(scheduler.Leave{Engine: "e"})
	first := map[string]string{}
	for name, f := range map[string]*fleet{"seen": seen, "told": told, "fresh": fresh} {
		f.submit(trajectory("a", "short"), trajectory("b", "long"))
		f.do(scheduler.Join{Engine: "e", Capacity: 1200})
		var order []string
		for id := range f.on {
			order = append(order, id)
		}
		slices.Sort(order)
		first[name] = fmt.Sprint(order)
	}
	if first["told"] != first["seen"] || first["told"] != "[b]" || first["fresh"] == "[b]" {
		t.Errorf("an engine with room for one takes %v, want the long one where lengths are known", first)
	}
}

// TestRecallOfTheImpossible is refused and teaches nothing.
func TestRecallOfTheImpossible(t *testing.T) {
	f := newFleet(t, nil)
	f.refuse(scheduler.Recall{Run: "r", Problem: "p", Limit: 0, Turns: [][]int{{1}}}, scheduler.ErrInvalid, "limit 0")
	f.refuse(scheduler.Recall{Run: "r", Problem: "p", Limit: 9, Stage: -1}, scheduler.ErrInvalid, "stage -1")
	f.refuse(scheduler.Recall{Run: "r", Problem: "p", Limit: 9, Turns: [][]int{{5, 3}}}, scheduler.ErrInvalid, "token 3")
	f.refuse(scheduler.Recall{Run: "r", Problem: "p", Limit: 9, Turns: [][]int{{-1}}}, scheduler.ErrInvalid, "token -1")
	f.do(scheduler.Recall{Run: "r", Problem: "p", Limit: 9, Turns: [][]int{{}, {50}}}) // cut to the limit
	f.empty()
}
