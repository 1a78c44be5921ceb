package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"temper/internal/inference"
	"temper/trainer/model"
)

// jobOf is a job of a session with a context.
func jobOf(session string, context ...int32) *job {
	return &job{req: inference.Request{Session: session, Tokens: context}, context: context}
}

// numbered is a context of n tokens from first on.
func numbered(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}

// feedAll feeds the contexts of all running sequences to the end, and returns how many
// tokens that took.
func feedAll(t *testing.T, s *sequences) (fed int) {
	t.Helper()
	for range 1000 {
		behind := false
		for _, q := range s.running {
			if q.cached == len(q.job.context) {
				continue
			}
			behind = true
			_, ready := s.catchUp(q, nil)
			if !ready {
				continue
			}
			left := len(q.job.context) - q.cached
			n := q.claim(min(left, 5))
			q.advance(s.pool, q.job.context[q.cached:q.cached+n])
			fed += n
		}
		if !behind {
			return fed
		}
	}
	t.Fatal("some sequence never got its tokens")
	return 0
}

// play runs a job from its beginning to its end with its context cached, and returns how
// many tokens were fed.
func play(t *testing.T, s *sequences, j *job) int {
	t.Helper()
	q := s.begin(j)
	if q == nil {
		t.Fatalf("no blocks for session %q", j.req.Session)
	}
	fed := feedAll(t, s)
	s.finish(q)
	return fed
}

func TestIdleSessionsLoseTheirBlocksOldestFirst(t *testing.T) {
	s := newSequences(4, 4, 32)
	play(t, s, jobOf("a", numbered(0, 30)...))
	play(t, s, jobOf("b", numbered(100, 30)...))
	play(t, s, jobOf("a", numbered(0, 31)...))
	var lost []string
	s.forgotten = func(session string) { lost = append(lost, session) }
	play(t, s, jobOf("c", numbered(200, 20)...))
	if !slices.Equal(lost, []string{"b"}) || s.evictions != 1 {
		t.Errorf("sessions %v lost their blocks with %d evictions, want b, idle for longest", lost, s.evictions)
	}
	s.release("a")
	play(t, s, jobOf("d", numbered(300, 20)...))
	if s.evictions != 1 {
		t.Errorf("%d evictions, want the blocks of the released session to go first", s.evictions)
	}
}

func TestSessionKeepsTheCommonPastOnly(t *testing.T) {
	s := newSequences(1, 4, 64)
	for _, c := range []struct {
		context []int32
		fed     int
	}{
		{[]int32{1, 2, 3}, 3},
		{[]int32{1, 2, 3, 4, 5}, 2},
		{[]int32{1, 2, 9, 4, 5}, 3},
		{[]int32{1, 2, 9, 4, 5}, 1}, // the last token is fed again
		{[]int32{1}, 1},
		{numbered(1, 40), 39},
		{append(numbered(1, 20), 7, 8), 2},
	} {
		if fed := play(t, s, jobOf("a", c.context...)); fed != c.fed {
			t.Errorf("context %v: %d tokens fed, want %d", c.context, fed, c.fed)
		}
	}
}

// TestGroupFeedsItsPromptOnce begins all rollouts before the prompt has been fed.
func TestGroupFeedsItsPromptOnce(t *testing.T) {
	for _, tokens := range []int{1000, 1007, 1008, 1009, 17, 9} {
		s := newSequences(32, 200, 1100)
		for range 32 {
			if s.begin(jobOf("", numbered(0, tokens)...)) == nil {
				t.Fatal("no blocks")
			}
		}
		if fed := feedAll(t, s); fed != tokens+31 {
			t.Errorf("32 rollouts of %d tokens: %d fed, want the prompt once and its last token for each", tokens, fed)
		}
		if want := blocksOf(tokens) + 31; tokens > blockTokens && s.pool.held() > want {
			t.Errorf("32 rollouts of %d tokens hold %d blocks, want at most %d", tokens, s.pool.held(), want)
		}
	}
}

func TestFollowersGoOnWhenTheirLeaderGoes(t *testing.T) {
	s := newSequences(4, 40, 100)
	leader := s.begin(jobOf("", numbered(0, 90)...))
	for range 2 {
		s.begin(jobOf("", numbered(0, 90)...))
	}
	leader.advance(s.pool, leader.job.context[:leader.claim(20)])
	s.finish(leader)
	if fed := feedAll(t, s); fed != 70+10 {
		t.Errorf("%d tokens fed after the leader had gone with 20 of 90, want the other 70 and the last block once more", fed)
	}
}

func TestOldestJobsKeepTheirBlocks(t *testing.T) {
	s := newSequences(3, 4, 64)
	var jobs []*job
	for i := range 3 {
		j := jobOf("", numbered(100*i, 10)...)
		j.age = uint64(i)
		jobs = append(jobs, j)
	}
	for _, i := range []int{0, 2, 1} { // begun in another order
		if s.begin(jobs[i]) == nil && i != 1 {
			t.Fatal("no blocks")
		}
	}
	if s.begin(jobs[1]); len(s.running) < 2 {
		t.Fatalf("%d jobs run, want at least 2", len(s.running))
	}
	for _, q := range s.running {
		q.job.context = append(q.job.context, numbered(50, 40)...) // four blocks
	}
	got := s.grow()
	if len(s.running) != 1 || s.running[0].job != jobs[0] || slices.Contains(got, jobs[0]) || len(got) == 0 {
		t.Errorf("%d jobs run on, want the oldest alone", len(s.running))
	}
}

func TestFullStepsSpareIdleSessions(t *testing.T) {
	s := newSequences(evictBelow+1, evictBelow+1, 16)
	play(t, s, jobOf("idle", 1))
	play(t, s, jobOf("older", 2))
	for i := range evictBelow - 1 {
		s.begin(jobOf("", int32(10+i)))
	}
	if s.begin(jobOf("x", 100)) == nil || s.evictions != 1 {
		t.Fatalf("with %d running jobs an idle session must give way", evictBelow-1)
	}
	if s.begin(jobOf("y", 101)) != nil {
		t.Errorf("with %d running jobs an idle session must keep its blocks", evictBelow)
	}
	if s.begin(jobOf("older", 2, 3)) == nil {
		t.Error("a session must get its own blocks at any time")
	}
}

// TestBlocksHoldWhatTheirSequencesSay plays random sessions that share beginnings, change
// their past, end early and lose their blocks, and keeps a second account of what was
// written where.
func TestBlocksHoldWhatTheirSequencesSay(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		s := newSequences(6, 4+draw.IntN(12), 64)
		device := make([][blockTokens]int32, len(s.pool.blocks))
		var waiting []*job
		var age uint64
		for range 400 {
			if len(s.running)+len(waiting) < 8 {
				context := make([]int32, 1+draw.IntN(50))
				for i := range context {
					context[i] = int32(i / (1 + draw.IntN(3)) % (3 + draw.IntN(2)*20))
				}
				j := jobOf([]string{"", "a", "b", "c", "d"}[draw.IntN(5)], context...)
				age++
				j.age = age
				waiting = append(waiting, j)
			}
			waiting = slices.DeleteFunc(waiting, func(j *job) bool { return s.begin(j) != nil })
			waiting = append(waiting, s.grow()...)
			var copies []blockCopy
			var ready []*sequence
			for _, q := range s.running {
				ok := false
				if copies, ok = s.catchUp(q, copies); ok {
					ready = append(ready, q)
				}
			}
			if len(s.running) > 0 && len(ready) == 0 {
				t.Fatal("all running sequences wait")
			}
			before := slices.Clone(device)
			for _, c := range copies {
				copy(device[c.to][:c.n], before[c.from][:c.n])
			}
			for _, q := range ready {
				n := q.claim(min(len(q.job.context)-q.cached, 1+draw.IntN(20)))
				for i := q.cached; i < q.cached+n; i++ {
					device[q.blocks[i/blockTokens].id][i%blockTokens] = q.job.context[i]
				}
				q.advance(s.pool, q.job.context[q.cached:q.cached+n])
			}
			for _, q := range slices.Clone(s.running) {
				for i := range q.cached {
					if got := device[q.blocks[i/blockTokens].id][i%blockTokens]; got != q.job.context[i] {
						t.Fatalf("round %d: token %d is %d in the cache, want %d", round, i, got, q.job.context[i])
					}
				}
				switch n := len(q.job.context); {
				case n >= 60 || draw.IntN(20) == 0:
					s.finish(q)
				case q.cached == n:
					q.job.context = append(q.job.context, int32(draw.IntN(3)))
				}
			}
			if draw.IntN(15) == 0 {
				s.release([]string{"a", "b", "c", "d"}[draw.IntN(4)])
			}
			held := 0
			for i := range s.pool.blocks {
				if s.pool.blocks[i].refs > 0 {
					held++
				}
			}
			if held != s.pool.held() {
				t.Fatalf("%d blocks are held, the pool says %d", held, s.pool.held())
			}
		}
		for _, q := range slices.Clone(s.running) {
			s.finish(q)
		}
		for _, session := range []string{"a", "b", "c", "d"} {
			s.release(session)
		}
		if s.pool.held() != 0 {
			t.Fatalf("round %d: %d blocks are held by nobody", round, s.pool.held())
		}
	}
}

// TestGoBackendReadsTables fails when every pass would copy all blocks.
func TestGoBackendReadsTables(t *testing.T) {
	cfg := Config{Model: model.Config{
		VocabSize: 50, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 1, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.1,
	}}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	d, err := openDevice(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d.gather {
		t.Error("the Go backend copies blocks")
	}
}
