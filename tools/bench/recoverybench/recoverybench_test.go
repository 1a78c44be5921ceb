package recoverybench_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"temper/internal/rl"
	"temper/tools/bench/recoverybench"
)

func trajectories(lengths ...int) []rl.Trajectory {
	out := make([]rl.Trajectory, len(lengths))
	for i, n := range lengths {
		out[i] = rl.Trajectory{ProblemID: "p", Rollout: i, Step: 1, LossMask: make([]bool, n+3)}
		for k := range n {
			out[i].LossMask[3+k] = true // behind the prompt
		}
	}
	return out
}

// TestEachTokenIsInTheSameDanger: lifetimes have the mean of the geometric
// distribution, whatever the trajectory and the attempt.
func TestEachTokenIsInTheSameDanger(t *testing.T) {
	const chance, n = 0.02, 20000
	one := trajectories(5)
	sum := 0.0
	for attempt := range n {
		sum += float64(recoverybench.Lifetime(7, chance, &one[0], attempt))
	}
	// The mean is (1-p)/p = 49, the standard error of 20,000 draws 0.35.
	if mean := sum / n; math.Abs(mean-49) > 1.5 {
		t.Errorf("mean lifetime %.2f, want 49", mean)
	}
	if life := recoverybench.Lifetime(7, 0, &one[0], 0); life != math.MaxInt {
		t.Errorf("lifetime %d without danger, want no end", life)
	}
}

func TestSettle(t *testing.T) {
	const seed, chance = 3, 0.01
	ts := trajectories(10, 20, 400) // the last one is in danger almost always
	_, lostByRollout, fresh := recoverybench.Settle(recoverybench.FreshRollouts, seed, chance, ts)
	if fresh[2] == 0 {
		t.Fatalf("fresh draws %v: a trajectory of 400 tokens at 1 %% a token was never interrupted", fresh)
	}
	if fresh[0] == fresh[2] {
		t.Errorf("fresh draws %v: those of a short trajectory were made anew with those of a long one", fresh)
	}
	_, lostByGroup, fresh := recoverybench.Settle(recoverybench.FreshGroups, seed, chance, ts)
	if fresh[0] != fresh[2] || fresh[1] != fresh[2] {
		t.Errorf("fresh draws %v: want those of the whole group", fresh)
	}
	rounds, lostBySame, fresh := recoverybench.Settle(recoverybench.SameDraws, seed, chance, ts)
	if fresh[0]+fresh[1]+fresh[2] != 0 || rounds != 1 {
		t.Errorf("fresh draws %v, %d rounds: the same draws are to be repeated", fresh, rounds)
	}
	if lostBySame != lostByGroup {
		t.Errorf("%d tokens lost with the same draws, %d with fresh ones of equal lengths", lostBySame, lostByGroup)
	}
	if lostByRollout == 0 || lostByRollout > lostByGroup {
		t.Errorf("%d tokens lost by rollout, %d by group", lostByRollout, lostByGroup)
	}
}

func TestNothingIsLostWithoutDanger(t *testing.T) {
	for _, how := range []recoverybench.Recovery{recoverybench.SameDraws, recoverybench.FreshRollouts, recoverybench.FreshGroups} {
		rounds, lost, _ := recoverybench.Settle(how, 1, 0, trajectories(10, 1000))
		if rounds != 1 || lost != 0 {
			t.Errorf("%s: %d rounds, %d tokens lost, want 1 and 0", how, rounds, lost)
		}
	}
}

// TestPlotIsXML with a line for each result.
func TestPlotIsXML(t *testing.T) {
	svg := string(recoverybench.Plot([]recoverybench.Result{{Recovery: recoverybench.Undisturbed, Longest: 20}, {Recovery: recoverybench.SameDraws, Rate: 0.2}}))
	if n := strings.Count(svg, "<polyline"); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
