package record_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/rl"
	"temper/internal/run/record"
	"temper/sandbox/status"
)

// trajectory makes one with every kind of content.
func trajectory(seed uint64, tokens int) rl.Trajectory {
	r := rl.Rand(seed)
	t := rl.Trajectory{
		ProblemID: fmt.Sprintf("p%d", seed%5), Rollout: int(seed % 32), Stage: 2, Step: 70000, Seed: r.Uint64(), PolicyVersion: 69999, //nolint:gosec // small
		PromptTokens: tokens / 5, StopReason: rl.StopAnswered, Answer: "42 \xff\xfe", AnswerTags: 1, Reward: 1,
		Details: `{"style": 0.25}`, Err: "",
	}
	for i := range tokens {
		in := i >= t.PromptTokens && i%7 != 3
		t.Tokens = append(t.Tokens, r.Int32N(1<<(3+seed%20)))
		t.LossMask = append(t.LossMask, in)
		logprob := float32(0)
		if in {
			logprob = -float32(r.ExpFloat64())
		}
		t.RolloutLogprobs = append(t.RolloutLogprobs, logprob)
	}
	if seed%3 == 1 && tokens > 40 {
		t.Spans = []rl.Span{{From: t.PromptTokens, Version: 69999}, {From: tokens/2 + 1, Version: 70000}, {From: tokens - 1, Version: 70002}}
	}
	for i := range seed % 4 {
		turn := rl.Turn{Start: int(10 * i), End: int(10*i) + 5, Finish: rl.FinishStop} //nolint:gosec // small
		for range i {
			turn.Calls = append(turn.Calls, rl.ToolCall{
				ID: "a/b/0", Name: "python", Arguments: "print('\x00\xff<&>') 1\n",
				Status: status.OK, Response: "1\n\ufffd",
			})
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// TestRecordsOfAnEarlierBuild are refused with the way out, not read in part.
func TestRecordsOfAnEarlierBuild(t *testing.T) {
	for name, data := range map[string]string{
		"compact": "temper trajectories 1\nrest",
		"lines":   `{"problem_id":"p","rollout":0,"turns":[{"start":0,"end":0,"finish":"stop","calls":[{"name":"python","code":"1","status":"ok","response":"1"}]}]}`,
	} {
		if _, err := record.Decode([]byte(data)); err == nil || !strings.Contains(err.Error(), "of a build before v0.1.0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bits compares floats by their bits.
var bits = []cmp.Option{
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
}

func pack(t testing.TB, ts []rl.Trajectory) []record.Packed {
	t.Helper()
	out := make([]record.Packed, len(ts))
	for i := range ts {
		var err error
		if out[i], err = record.Pack(&ts[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// checkTokens reads a compact record up to its log-probabilities, asking for a little more
// each time until it knows where they begin.
func checkTokens(t *testing.T, data []byte, ts []rl.Trajectory) {
	t.Helper()
	end, ok := 0, false
	for n := 0; !ok; n = max(n+1, min(end, len(data))) {
		var err error
		if end, ok, err = record.TokensEnd(data[:n]); err != nil || n == len(data) && !ok {
			t.Fatalf("the first %d bytes: %d %v %v", n, end, ok, err)
		}
	}
	if end >= len(data) {
		t.Fatalf("the tokens end at %d of %d bytes", end, len(data))
	}
	var reader record.TokenReader
	if _, err := reader.Read(data[:end-1]); err == nil {
		t.Error("a record that ends within its tokens was read")
	}
	packed, err := reader.Read(data[:end])
	if err != nil {
		t.Fatal(err)
	}
	for i := range packed {
		want := ts[i]
		want.RolloutLogprobs = nil
		got, err := packed[i].UnpackTokens()
		if diff := cmp.Diff(got, want, bits...); err != nil || diff != "" {
			t.Fatalf("without log-probabilities: %v, got -, want +\n%s", err, diff)
		}
		if got := packed[i].AppendResponse([]int32{7}); got[0] != 7 || !slices.Equal(got[1:], want.Tokens[want.PromptTokens:]) {
			t.Fatalf("trajectory %d has another response", i)
		}
		if _, err := packed[i].Unpack(); err == nil && len(want.Tokens) > want.PromptTokens {
			t.Fatal("log-probabilities were made of nothing")
		}
	}
	if _, err := record.DecodePacked(data[:end]); err == nil {
		t.Error("a record without log-probabilities was read as a whole one")
	}
}

// TestCompactRecordIsExact for many shapes, and the lines made of what was read are
// those of the original.
func TestCompactRecordIsExact(t *testing.T) {
	var ts []rl.Trajectory
	for seed := range uint64(60) {
		ts = append(ts, trajectory(seed, int(seed*seed))) //nolint:gosec // small
	}
	ts[7].RolloutLogprobs[0] = float32(math.Copysign(0, -1)) // beside the sampled tokens
	ts[8].RolloutLogprobs[40] = float32(math.Inf(-1))
	ts[9].Tokens[3], ts[9].Tokens[4] = -1, math.MaxInt32
	ts[9].Reward, ts[9].PolicyVersion = math.Copysign(0, -1), -1
	data, err := record.Compact(pack(t, ts))
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, ts, bits...); diff != "" {
		t.Fatalf("got -, want +\n%s", diff)
	}
	checkTokens(t, data, ts)
	again, err := record.Compact(pack(t, got))
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("the record of what was read has other bytes (%v)", err)
	}
	ts, got = append(ts[:8:8], ts[9:]...), append(got[:8:8], got[9:]...) // JSON has no infinity
	want, err := record.Lines(ts)
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := record.Lines(got); err != nil || !bytes.Equal(lines, want) {
		t.Errorf("the lines of what was read differ (%v)", err)
	}
}

// TestEveryFieldIsStored, except those that the package names. A new field must get its
// place in the compact record.
func TestEveryFieldIsStored(t *testing.T) {
	one := trajectory(1, 3)
	one.LossMask = []bool{false, true, true}
	one.PromptTokens = 1
	one.Turns = []rl.Turn{{Start: 1, End: 3, Finish: rl.FinishLength, Calls: []rl.ToolCall{{}}}}
	one.Spans = []rl.Span{{From: 1, Version: 9}, {From: 2, Version: 10}}
	one.PolicyVersion = 9
	fill(reflect.ValueOf(&one).Elem())
	got, err := record.Decode(must(record.Compact(pack(t, []rl.Trajectory{one}))))
	if err != nil || len(got) != 1 {
		t.Fatal(err)
	}
	one.Text, one.SampleTime, one.ToolTime, one.Turns[0].Calls[0].Spent = "", 0, 0, rl.CallTime{}
	one.Turns[0].Begin, one.Turns[0].Generated = 0, 0
	if diff := cmp.Diff(got[0], one, bits...); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// fill gives a value to each field that has none.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		if k := v.Type().Elem().Kind(); k == reflect.Struct {
			for i := range v.Len() {
				fill(v.Index(i))
			}
		}
	case reflect.String:
		if v.IsZero() {
			v.SetString("filled")
		}
	case reflect.Int, reflect.Int64:
		if v.IsZero() {
			v.SetInt(9)
		}
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a field of kind " + v.Kind().String() + ": teach the test")
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestDamagedRecordIsRefused wherever a byte is wrong or missing, unless it is one that
// says nothing: zstd ignores a bit of each frame.
func TestDamagedRecordIsRefused(t *testing.T) {
	data := must(record.Compact(pack(t, []rl.Trajectory{trajectory(3, 300), trajectory(7, 40)})))
	want, err := record.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		if _, err := record.Decode(data[:at]); err == nil && at > 0 {
			t.Fatalf("a record of %d of %d bytes is read", at, len(data))
		}
		bad := bytes.Clone(data)
		bad[at] ^= 0x10
		if got, err := record.Decode(bad); err == nil && !cmp.Equal(got, want, bits...) {
			t.Fatalf("a record with another byte %d is read as something else", at)
		}
	}
	if _, err := record.Decode(append(bytes.Clone(data), 0)); err == nil {
		t.Error("a record with a byte more is read")
	}
}

// FuzzDecode: damage is an error and no panic, and what can be read is written to what
// reads the same.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(must(record.Compact(pack(f, []rl.Trajectory{trajectory(seed, int(10*seed)), trajectory(seed+8, 20)})))) //nolint:gosec // small
	}
	f.Add([]byte(`{"problem_id":"a","tokens":[1],"loss_mask":[false],"rollout_logprobs":[0],"prompt_tokens":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		end, ok, err := record.TokensEnd(data)
		if ok && err == nil && end < len(data) {
			if packed, err := new(record.TokenReader).Read(data[:end]); err == nil {
				for i := range packed { // as who makes a text of them
					_ = packed[i].AppendResponse(nil)
					_, _ = packed[i].UnpackTokens()
				}
			}
		}
		ts, err := record.Decode(data)
		if err != nil || len(ts) == 0 {
			return
		}
		again, err := record.Decode(must(record.Compact(pack(t, ts))))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ts {
			ts[i].Text = ""
		}
		if diff := cmp.Diff(again, ts, append(bits, cmpopts.EquateEmpty())...); diff != "" {
			t.Errorf("got -, want +\n%s", diff)
		}
	})
}

// BenchmarkCompact is the record of a group of 32 rollouts of 7,000 tokens of a
// vocabulary of 150,000.
func BenchmarkCompact(b *testing.B) {
	var ts []rl.Trajectory
	for i := range 32 {
		t := rl.Trajectory{ProblemID: "p", Rollout: i, PromptTokens: 500, StopReason: rl.StopAnswered}
		prompt, r := rl.Rand(9), rl.Rand(uint64(i))
		for at := range 7000 {
			draw := r
			if at < 500 {
				draw = prompt
			}
			t.Tokens = append(t.Tokens, int32(math.Exp(draw.Float64()*math.Log(150000)))) // Zipf's law
			t.LossMask = append(t.LossMask, at >= 500)
			logprob := float32(0)
			if others := math.Exp(-16 * draw.Float64()); at >= 500 {
				logprob = -float32(math.Log(float64(float32(1 + others))))
			}
			t.RolloutLogprobs = append(t.RolloutLogprobs, logprob)
		}
		ts = append(ts, t)
	}
	var data []byte
	start := time.Now()
	for b.Loop() {
		data = must(record.Compact(pack(b, ts)))
	}
	b.ReportMetric(float64(len(data))/float64(32*7000), "bytes/token")
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N*32*7000), "ns/token")
}
