//go:build integration

package external_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/internal/blob/memblob"
	"temper/internal/inference"
	"temper/internal/inference/external"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
)

// played is a trajectory of two turns.
type played struct {
	ids     []int32
	sampled []inference.Generation
	starts  []int
}

func play(t *testing.T, e *external.Engine, i int, version int64) played {
	p := played{ids: []int32{1, int32(2 + i%500), 3}}
	session := fmt.Sprint("trajectory ", i)
	for turn := range 2 {
		gen, err := e.Generate(t.Context(), inference.Request{
			Tokens: p.ids, MaxTokens: 40, Temperature: 1, Seed: rl.Seed(1, "killed", uint64(i), uint64(turn)), Version: version, Session: session,
		})
		if err != nil {
			t.Errorf("trajectory %d is lost: %v", i, err)
			return p
		}
		if gen.Version != version || len(gen.Tokens) != 40 {
			t.Errorf("trajectory %d: %d tokens of version %d, want 40 of %d", i, len(gen.Tokens), gen.Version, version)
		}
		p.starts, p.sampled = append(p.starts, len(p.ids)), append(p.sampled, gen)
		p.ids = slices.Concat(p.ids, gen.Tokens, []int32{4, 5, 6})
	}
	e.Release(session)
	return p
}

// check compares all log-probabilities with those of the policy.
func (p played) check(t *testing.T, publisher checkpoint.Exporter, dir string) {
	for turn, gen := range p.sampled {
		from := p.starts[turn]
		want, err := publisher.Logprobs(t.Context(), dir, p.ids[:from+len(gen.Tokens)], from, 1)
		if err != nil {
			t.Error(err)
			return
		}
		for i, lp := range gen.Logprobs {
			if d := math.Abs(float64(lp - want[i])); !(d <= 1e-4) {
				t.Errorf("log-probability %d is %v, want %v: the token is of another policy", i, lp, want[i])
				return
			}
		}
	}
}

// kill ends the server that this process runs.
func kill(t *testing.T, folder string) {
	children, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), folder) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("no server runs that could be killed")
}

// TestKilledLlamaCpp samples trajectories, 16 in parallel, with a policy after the
// other; the server is killed under each of the first three. None is lost, and none has
// tokens of another policy. TEMPER_TEST_TRAJECTORIES is how many there are in all.
func TestKilledLlamaCpp(t *testing.T) {
	const rounds, parallel = 4, 16
	num := 4 * parallel
	if text := os.Getenv("TEMPER_TEST_TRAJECTORIES"); text != "" {
		var err error
		if num, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	m, store := network(true), memblob.New()
	folder := t.TempDir()
	e := llama(t, store, m, folder)
	publisher := checkpoint.Exporter{Store: store}
	start, kills, checked := time.Now(), 0, 0
	for round := range rounds {
		ref := stored(t, store, m, uint64(round+1))
		if err := e.Load(t.Context(), ref, int64(round)); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "policy")
		if err := publisher.Write(t.Context(), ref, dir); err != nil {
			t.Fatal(err)
		}
		each := num / rounds
		all := make([]played, each)
		var wg sync.WaitGroup
		var next, done atomic.Int64
		for range parallel {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < int64(each); i = next.Add(1) - 1 {
					all[i] = play(t, e, round*each+int(i), int64(round))
					if done.Add(1) == int64(each/2) && round < 3 {
						kill(t, folder)
					}
				}
			})
		}
		wg.Wait()
		if round < 3 {
			kills++
		}
		for i := 0; i < each; i += max(1, each/25) {
			all[i].check(t, publisher, dir)
			checked++
		}
	}
	t.Logf("%d trajectories of 80 tokens in %s, %d kills, all log-probabilities of %d trajectories compared", num/rounds*rounds, time.Since(start).Round(time.Second), kills, checked)
}
