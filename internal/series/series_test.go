package series_test

import (
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/rl"
	"temper/internal/series"
	"temper/sandbox/status"
)

// TestValuesInJSON: finite numbers are written as a plain map writes them, and the
// others come back.
func TestValuesInJSON(t *testing.T) {
	plain := map[string]float64{"b": 1e-9, "a": 0.1, "c": 1e21, "d/e<": -3, "z": 0}
	want, err := json.MarshalIndent(map[string]any{"m": plain}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(map[string]any{"m": series.Values(plain)}, "", "  ")
	if err != nil || string(got) != string(want) {
		t.Errorf("wrote (%v)\n%s\nwant\n%s", err, got, want)
	}
	odd := series.Values{"nan": math.NaN(), "up": math.Inf(1), "down": math.Inf(-1), "one": 1}
	data, err := json.Marshal(odd)
	if err != nil || string(data) != `{"down":"-Inf","nan":"NaN","one":1,"up":"+Inf"}` {
		t.Errorf("wrote %s (%v)", data, err)
	}
	var back series.Values
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(odd, back, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("came back, want -, got +\n%s", diff)
	}
	for _, bad := range []string{`{"a":"x"}`, `{"a":{}}`, `[1]`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// TestTable: every series of a record is described, once and in one line.
func TestTable(t *testing.T) {
	values := (&series.Step{
		Staleness: 1, Rollouts: series.Rollouts{},
		SamplingBusy: []series.Busy{{PeakMemory: 1, Usage: &series.SamplerUse{}}}, Publishing: time.Second, Training: 2 * time.Second,
		TrainingBusy: &series.Busy{Work: &series.Work{FLOPs: 1, Peak: 2}, Graphs: &series.Graphs{Programs: 6, Compiled: 4, Loaded: 2, Compiling: 3 * time.Second}},
	}).Values()
	all := series.All()
	for name, want := range map[string]float64{"xla/programs": 6, "xla/compiled": 4, "xla/cache_hits": 2, "xla/compile_s": 3} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
		if _, ok := (&series.Step{TrainingBusy: &series.Busy{}}).Values()[name]; ok {
			t.Errorf("a step that no plugin trained has %s", name)
		}
	}
	if _, ok := (&series.Step{}).Values()[series.Staleness]; ok {
		t.Error("a step that is sampled on policy has a staleness")
	}
	if len(all) != len(values) || len(all) < 40 {
		t.Errorf("%d series are described, a record has %d", len(all), len(values))
	}
	for i, m := range all {
		if _, ok := values[m.Name]; !ok || m.Meaning == "" || strings.ContainsAny(m.Meaning, "\n.") || !strings.Contains(m.Name, "/") {
			t.Errorf("row %+v", m)
		}
		if i > 0 && all[i-1].Name >= m.Name {
			t.Errorf("%s comes after %s", m.Name, all[i-1].Name)
		}
	}
}

func trajectory(reward float64, stop rl.StopReason, calls ...status.Status) rl.Trajectory {
	t := rl.Trajectory{Reward: reward, StopReason: stop, Tokens: make([]int32, 5), PromptTokens: 2, AnswerTags: 1, SampleTime: time.Second}
	for _, s := range calls {
		t.Turns = append(t.Turns, rl.Turn{Calls: []rl.ToolCall{{Status: s}}})
	}
	return t
}

// TestTally: the tool-error rate is over calls, not over trajectories.
func TestTally(t *testing.T) {
	var got, more series.Tally
	for _, one := range []rl.Trajectory{
		trajectory(1, rl.StopAnswered, status.OK, status.OK, status.OK, status.Error),
		trajectory(0, rl.StopMaxTokens, status.Error, status.Error),
	} {
		more = series.Tally{}
		more.Add(&one)
		got.Merge(more)
	}
	want := series.Tally{Num: 2, Calls: 6, Failed: 3, Tokens: 6, Turns: 6, Clipped: 1, Reward: 1}
	if diff := cmp.Diff(want, got); diff != "" || got.ToolErrorRate() != 0.5 || got.Mean(got.Reward) != 0.5 {
		t.Errorf("rate %v, mean %v, want -, got +\n%s", got.ToolErrorRate(), got.Mean(got.Reward), diff)
	}
	var none series.Tally
	if none.ToolErrorRate() != 0 || none.Mean(1) != 0 {
		t.Errorf("of nothing: %v, %v", none.ToolErrorRate(), none.Mean(1))
	}
}

// TestSeriesHaveTheMeaningOfTheirNames: verl's clip fraction is of both bounds,
// its lower one of the dual clip, and its policy loss is without the penalty.
func TestSeriesHaveTheMeaningOfTheirNames(t *testing.T) {
	got := (&series.Step{Train: rl.TrainMetrics{Loss: 3, Penalty: 1, ClipLow: 0.25, ClipHigh: 0.5, ClipDual: 0.125, RefK3: 7, MismatchKL: 5, MismatchMax: 6, WeightMean: 8}}).Values()
	for name, want := range map[string]float64{
		"actor/pg_loss": 2, "actor/pg_clipfrac": 0.75, "actor/pg_clipfrac_lower": 0.125, "actor/kl_loss": 7,
		"training/rollout_actor_logprob_diff_mean": 5, "training/rollout_actor_logprob_diff_max": 6, "rollout_corr/rollout_is_mean": 8,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// TestSpread: merging groups in any cut gives the numbers of all trajectories.
func TestSpread(t *testing.T) {
	all := []rl.Trajectory{
		trajectory(1, rl.StopAnswered, status.OK, status.Error), trajectory(0, rl.StopAnswered, status.OK), trajectory(0.5, rl.StopAnswered),
	}
	for i := range all {
		all[i].Tokens = make([]int32, 5+10*i) // responses of 3, 13 and 23 tokens
	}
	var whole, a, b series.Spread
	for i := range all {
		whole.Add(&all[i])
		if i == 0 {
			a.Add(&all[i])
		} else {
			b.Add(&all[i])
		}
	}
	a.Merge(b)
	if diff := cmp.Diff(whole, a); diff != "" {
		t.Errorf("whole -, merged +\n%s", diff)
	}
	values := (&series.Step{Rollouts: series.Rollouts{Spread: a.Summary()}}).Values()
	for name, want := range map[string]float64{
		"critic/rewards/max": 1, "critic/rewards/min": 0, "response_length/min": 3, "response_length/p50": 13, "response_length/p90": 13, "response_length/max": 23,
		"prompt_length/mean": 2, "num_turns/min": 0, "num_turns/max": 2, "tool/status/ok": 2.0 / 3, "tool/status/error": 1.0 / 3, "tool/status/killed": 0,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
}

// TestUsage: a quantile is right within a fifth, and engines side by side add up.
func TestUsage(t *testing.T) {
	var d series.Durations
	for ms := 1; ms <= 1000; ms++ {
		d.Add(time.Duration(ms) * time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.95: 950 * time.Millisecond, 1: time.Second} {
		if got := d.Quantile(share); got < want || float64(got) > 1.2*float64(want) {
			t.Errorf("quantile %g is %v, want %v", share, got, want)
		}
	}
	if d.Max != time.Second || (&series.Durations{}).Quantile(0.5) != 0 {
		t.Errorf("the longest is %v", d.Max)
	}
	part := func(worker string, running, kv float64) series.Busy {
		u := series.SamplerUse{Fed: 30, Shared: 10, Tokens: 20, Rows: 100, Judging: time.Duration(running) * time.Second}
		u.Running.Look(running)
		u.Running.Look(running + 2)
		u.KVUse.Look(kv)
		return series.Busy{Worker: worker, Usage: &u}
	}
	values := (&series.Step{SamplingBusy: []series.Busy{part("a", 3, 0.5), part("b", 5, 0.25), part("b", 5, 0.25)}}).Values()
	for name, want := range map[string]float64{
		"engine/running/mean": 10, "engine/running/max": 12, "engine/kv_use/mean": 0.375, "engine/fill/mean": 0.5, "engine/prefix_hit_rate": 0.25, "engine/evictions": 0,
		"timing_s/reward": 10, // both parts of b
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}

// TestUsageHasTheSameBits: the sum over engines does not depend on the order in which a map
// gives them.
func TestUsageHasTheSameBits(t *testing.T) {
	var parts []series.Busy
	for i := range 12 {
		u := series.SamplerUse{}
		u.Running.Look(math.Pow(10, float64(i)) / 3)
		parts = append(parts, series.Busy{Worker: string(rune('a' + i)), Usage: &u})
	}
	first := (&series.Step{SamplingBusy: parts}).Values()["engine/running/mean"]
	for range 100 {
		if again := (&series.Step{SamplingBusy: parts}).Values()["engine/running/mean"]; again != first {
			t.Fatalf("the mean is %v, and then %v", first, again)
		}
	}
}

// TestUtilisation is over the time of the update alone, and is not recorded where nobody
// knows the peak.
func TestUtilisation(t *testing.T) {
	step := series.Step{Training: 5 * time.Second, Publishing: time.Second, TrainingBusy: &series.Busy{Work: &series.Work{FLOPs: 2e12, Peak: 1e12}}}
	if got := step.Values()[series.Utilisation]; got != 0.5 {
		t.Errorf("2 TFLOP in 4 s at 1 TFLOP/s are %v of the peak", got)
	}
	step.TrainingBusy.Work = nil
	if got, ok := step.Values()[series.Utilisation]; ok {
		t.Errorf("of a peak that nobody knows: %v", got)
	}
}

// TestValuesOfAnyJSON: whatever way an object is written, its numbers are read.
func TestValuesOfAnyJSON(t *testing.T) {
	for text, want := range map[string]series.Values{
		`{}`: {}, ` { } `: {}, `{"a":1}`: {"a": 1}, "{ \"a\" :\t1.5e-3 ,\n\"b\":-0}": {"a": 1.5e-3, "b": math.Copysign(0, -1)},
		`{"a":"NaN","b":"+Inf","c":"-Inf","perf/step":2}`: {"a": math.NaN(), "b": math.Inf(1), "c": math.Inf(-1), "perf/step": 2},
		`{"a\u0041":3,"b":"\u004eaN"}`:                    {"aA": 3, "b": math.NaN()}, `{"a":1,"a":2}`: {"a": 2}, `{"a:b,}":1}`: {"a:b,}": 1}, `null`: {},
	} {
		var got series.Values
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if text == `null` {
			got = series.Values{} // a decoder leaves what null is for
		}
		same := cmp.Comparer(func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y })
		if diff := cmp.Diff(got, want, same); diff != "" {
			t.Errorf("%s (-got +want):\n%s", text, diff)
		}
	}
	for _, text := range []string{`{"a":null}`, `{"a":true}`, `{"a":"one"}`, `{"a":[1]}`, `{"a":{}}`, `{"a":1e999}`, `[1]`, `"a"`} {
		var got series.Values
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}

func BenchmarkValues(b *testing.B) {
	v := series.Values{}
	for _, m := range series.All() {
		v[m.Name] = float64(len(v)) / 7
	}
	data, err := json.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var got series.Values
		if err := json.Unmarshal(data, &got); err != nil {
			b.Fatal(err)
		}
	}
}

// TestKnown: a step without a correct trajectory says nothing of the calls of correct ones.
func TestKnown(t *testing.T) {
	some := series.Values{series.Reward: 0.5, series.CorrectErrors: 0, series.KeptErrors: 0, series.ToolErrors: 0.25}
	if got := some.Known(); !maps.Equal(got, some) {
		t.Errorf("%v, want %v", got, some)
	}
	none := series.Values{series.Reward: 0, series.CorrectErrors: 0, series.KeptErrors: 0, series.ToolErrors: 0.25}
	if got, want := none.Known(), (series.Values{series.Reward: 0, series.ToolErrors: 0.25}); !maps.Equal(got, want) || len(none) != 4 {
		t.Errorf("%v of %v, want %v", got, none, want)
	}
}
