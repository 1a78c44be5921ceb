package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"temper/internal/rl"
)

// Move is a member of the service that joins or leaves while a run goes on.
type Move struct {
	Member string
	// After is the share of the run's objects that are in the store before it.
	After float64
	// Delay passes between that moment and the move.
	Delay time.Duration
	// Join says that the member comes; otherwise it goes.
	Join bool
	// Gently is a SIGTERM, with time to drain. Otherwise the member is killed.
	Gently bool
	// Away is after how long a member that left is there again; 0 = it stays away.
	Away time.Duration
	// Dies is how long after it joined the member is killed for the first time; 0 =
	// it is not. The harness starts it again.
	Dies time.Duration
}

// Sizes of an elastic service.
const (
	// Rollouts is the greatest number of rollout processes, and the number of shards
	// of a step.
	Rollouts = 4
	// Nodes is the greatest number of sandbox nodes.
	Nodes = 3
	// Controls is the greatest number of control workers.
	Controls = 2
)

// Members of an elastic service that move are named by role and number, from 1.
func member(role string, i int) string { return fmt.Sprintf("%s-%d", role, i) }

// Growth is over after this share of a run, and shrinking begins after that one.
const (
	grown   = 0.4
	shrinks = 0.5
)

// Members that only leave for a moment are gone between these times.
const (
	minAway = 100 * time.Millisecond
	maxAway = 2500 * time.Millisecond
)

// Timeline draws the moves of one run, in order: rollout workers grow from one to
// Rollouts and shrink to one again, sandbox nodes and control workers alike, and
// the gateway and a node leave for a moment. Who stays to the end is drawn, too.
func (c Config) Timeline(run int) []Move {
	r := rl.Rand(rl.Seed(c.Seed, "elastic", uint64(run)))
	moves := slices.Concat(
		breathe(r, "rollout", Rollouts), breathe(r, "node", Nodes), breathe(r, "control", Controls),
		[]Move{blink(r, "gateway", latest), blink(r, member("node", 1), shrinks), blink(r, member("rollout", 1), shrinks)},
	)
	slices.SortStableFunc(moves, func(a, b Move) int { return cmp.Compare(a.After, b.After) })
	return moves
}

// breathe lets a role grow from its first member to n and shrink to one of them.
func breathe(r *rand.Rand, role string, n int) []Move {
	var moves []Move
	for i := 2; i <= n; i++ {
		m := between(r, Move{Member: member(role, i), Join: true}, 0, grown)
		if r.IntN(4) == 0 {
			m.Dies = 1 + time.Duration(r.Int64N(int64(maxStart)))
		}
		moves = append(moves, m)
	}
	for _, i := range r.Perm(n)[1:] {
		moves = append(moves, between(r, Move{Member: member(role, i+1), Gently: r.IntN(2) == 0}, shrinks, latest))
	}
	return moves
}

// blink lets a member leave for a moment, before a share of the run.
func blink(r *rand.Rand, name string, before float64) Move {
	away := minAway + time.Duration(r.Int64N(int64(maxAway-minAway)))
	return between(r, Move{Member: name, Gently: r.IntN(2) == 0, Away: away}, 0, before)
}

// between places a move in a part of the run.
func between(r *rand.Rand, m Move, from, to float64) Move {
	m.After = from + (to-from)*r.Float64()
	m.Delay = time.Duration(r.Int64N(int64(maxDelay)))
	return m
}
