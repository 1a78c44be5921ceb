package engine

import (
	"testing"

	"temper/internal/policy"
)

// jobOf is a job of a session with a context.
func jobOf(session string, context ...int32) *job {
	return &job{req: policy.Request{Session: session, Tokens: context}, context: context}
}

// play runs a job from taking a row to finishing with its context cached.
func play(t *testing.T, s *slots, j *job) *slot {
	t.Helper()
	sl := s.assignRow(j)
	if sl == nil {
		t.Fatalf("no row for session %q", j.req.Session)
	}
	sl.cached = append(sl.cached[:0], j.context...)
	s.finish(sl)
	return sl
}

func TestIdleSessionsLoseTheirRowsOldestFirst(t *testing.T) {
	s := newSlots(2)
	a := play(t, s, jobOf("a", 1, 2, 3))
	b := play(t, s, jobOf("b", 1, 2, 3))
	if again := play(t, s, jobOf("a", 1, 2, 3, 4)); again != a {
		t.Fatal("session a did not get its row back")
	}
	if c := play(t, s, jobOf("c", 9)); c != b || s.evictions != 1 {
		t.Errorf("session c took row %d with %d evictions, want that of b, idle for longest", c.row, s.evictions)
	}
	s.release("a")
	if d := play(t, s, jobOf("d", 9)); d != a || s.evictions != 1 {
		t.Errorf("session d took row %d with %d evictions, want the released one", d.row, s.evictions)
	}
}

func TestRowKeepsTheCommonPastOnly(t *testing.T) {
	s := newSlots(1)
	for _, c := range []struct {
		context []int32
		kept    int
	}{
		{[]int32{1, 2, 3}, 0},
		{[]int32{1, 2, 3, 4, 5}, 3},
		{[]int32{1, 2, 9, 4, 5}, 2},
		{[]int32{1, 2, 9, 4, 5}, 4}, // the last token is fed again
		{[]int32{1}, 0},
	} {
		j := jobOf("a", c.context...)
		sl := s.assignRow(j)
		if len(sl.cached) != c.kept {
			t.Errorf("context %v: %d tokens kept, want %d", c.context, len(sl.cached), c.kept)
		}
		sl.cached = append(sl.cached[:0], c.context...)
		s.finish(sl)
	}
}

func TestFullStepsSpareIdleSessions(t *testing.T) {
	s := newSlots(evictBelow + 1)
	play(t, s, jobOf("idle", 1))
	play(t, s, jobOf("older", 1))
	for range evictBelow - 1 {
		s.assignRow(jobOf(""))
	}
	if s.assignRow(jobOf("x")) == nil || s.evictions != 1 {
		t.Fatalf("with %d busy rows an idle session must give way", evictBelow-1)
	}
	if s.assignRow(jobOf("y")) != nil {
		t.Errorf("with %d busy rows an idle session must keep its row", evictBelow)
	}
	if s.assignRow(jobOf("older", 1, 2)) == nil {
		t.Error("a session must get its own row at any time")
	}
}

// TestPlanServesEveryJobInTurn has more jobs than a step has rows.
func TestPlanServesEveryJobInTurn(t *testing.T) {
	s := &shard{shapes: []shape{{8, 1}, {8, 4}}, slots: newSlots(20)}
	for range 20 {
		if s.slots.assignRow(jobOf("", 1, 2, 3, 4, 5, 6, 7, 8, 9)) == nil {
			t.Fatal("no row")
		}
	}
	served := map[int]int{}
	for range 5 {
		feeds, fed := s.plan()
		tokens := 0
		for i, f := range feeds {
			served[f.row]++
			tokens += len(f.tokens)
			fed[i].cached = append(fed[i].cached, f.tokens...)
		}
		if tokens != 8 {
			t.Errorf("step of %d tokens, want 8", tokens)
		}
	}
	for row := range 20 {
		if served[row] != 2 {
			t.Errorf("row %d served %d times in 5 steps of 8 for 20 jobs, want 2", row, served[row])
		}
	}
}

func TestPlanFillsTheStepWithContext(t *testing.T) {
	s := &shard{shapes: []shape{{8, 1}, {8, 4}}, slots: newSlots(3)}
	long := s.slots.assignRow(jobOf("", 1, 2, 3, 4, 5, 6, 7, 8, 9))
	for range 2 {
		sl := s.slots.assignRow(jobOf("", 1, 2))
		sl.cached = []int32{1}
	}
	feeds, _ := s.plan()
	for _, f := range feeds {
		want := 1
		if f.row == long.row {
			want = 4 // a chunk
		}
		if len(f.tokens) != want {
			t.Errorf("row %d is fed %d tokens, want %d", f.row, len(f.tokens), want)
		}
	}
}
