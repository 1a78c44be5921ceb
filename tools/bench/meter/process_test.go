package meter_test

import (
	"os"
	"testing"
	"time"

	"temper/tools/bench/meter"
)

func TestParseStat(t *testing.T) {
	line := "4242 (a) b) (c) S 17 1 1 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 100 1000000 250 18446744073709551615"
	p, err := meter.ParseStat([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := meter.Process{PID: 4242, State: 'S', Parent: 17, CPU: 1100 * time.Millisecond, RSS: 250 * int64(os.Getpagesize()), ChildFaults: 200}
	if p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "1 2 3", "1 (x) S 1", "x (y) S 1 1 1 0 -1 1 1 1 0 0 a 22 33 44 20 0 1 0 100 1000000 250"} {
		if _, err := meter.ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTreeFollowsParents(t *testing.T) {
	all := map[int]meter.Process{1: {PID: 1}, 2: {PID: 2, Parent: 1}, 3: {PID: 3, Parent: 2}, 4: {PID: 4, Parent: 9}, 5: {PID: 5, Parent: 1}}
	if got := len(meter.Tree(all, 2)); got != 2 {
		t.Errorf("%d processes under 2, want 2", got)
	}
	if got := len(meter.Tree(all, 1)); got != 4 {
		t.Errorf("%d processes under 1, want 4", got)
	}
	if meter.Tree(all, 77) != nil {
		t.Error("a tree without a root")
	}
	loop := map[int]meter.Process{1: {PID: 1, Parent: 2}, 2: {PID: 2, Parent: 1}}
	if got := len(meter.Tree(loop, 1)); got != 2 {
		t.Errorf("%d processes in a loop of reused ids, want 2", got)
	}
}
