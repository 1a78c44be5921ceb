package record_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/rl"
	"temper/internal/run/record"
)

// timed is a trajectory of two turns with a call each, of which the first was generated.
func timed(begin time.Duration, second bool) rl.Trajectory {
	call := rl.ToolCall{Spent: rl.CallTime{
		Begin: begin + time.Second, Took: 400 * time.Millisecond, Queue: time.Millisecond, Wall: 300 * time.Millisecond, CPU: 200 * time.Millisecond,
		PeakMemory: 1 << 20, StdoutBytes: 5, Stdout: "hello",
	}}
	t := rl.Trajectory{ProblemID: "p", Rollout: 3, SampleTime: time.Second, ToolTime: 400 * time.Millisecond}
	t.Turns = []rl.Turn{{Begin: begin, Generated: time.Second, Calls: []rl.ToolCall{call}}}
	if second {
		t.Turns = append([]rl.Turn{{Calls: []rl.ToolCall{{}}}}, t.Turns...)
	}
	return t
}

// TestTimesOfPartsAreJoined: a trajectory that two calls sampled one after another has one
// line of times, and the part that comes later begins where the one before ended.
func TestTimesOfPartsAreJoined(t *testing.T) {
	first, second := timed(0, false), timed(0, true)
	list := []record.Times{record.TimesOf(&second, 1), record.TimesOf(&first, 0), record.TimesOf(&second, 1)}
	data, err := record.EncodeTimes(list)
	if err != nil {
		t.Fatal(err)
	}
	back, err := record.DecodeTimes(data)
	if diff := cmp.Diff(list, back); diff != "" || err != nil {
		t.Fatalf("read back (%v): want -, got +\n%s", err, diff)
	}
	got, ok := record.JoinTimes(back)
	call := record.CallTimes{Begin: 1e6, Took: 4e5, Queue: 1e3, Wall: 3e5, CPU: 2e5, PeakMemory: 1 << 20, StdoutBytes: 5}
	later := call
	later.Begin += 1_400_000
	want := record.Times{Problem: "p", Rollout: 3, Sample: 2e6, Tool: 8e5, Turns: []record.TurnTimes{
		{Generate: 1e6, Calls: []record.CallTimes{call}}, {Begin: 1_400_000, Generate: 1e6, Calls: []record.CallTimes{later}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("joined (%v): want -, got +\n%s", ok, diff)
	}
	if _, ok := record.JoinTimes(back[:1]); ok {
		t.Error("the second part alone counts as the whole")
	}
}

func TestOutputsAreKeptWhole(t *testing.T) {
	tr := timed(0, false)
	tr.Turns[0].Calls = append(tr.Turns[0].Calls, rl.ToolCall{}) // it ran nothing
	data, err := record.EncodeOutputs(record.OutputsOf(&tr))
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeOutputs(data)
	want := []record.Output{{Problem: "p", Rollout: 3, Stdout: "hello"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("outputs (%v): want -, got +\n%s", err, diff)
	}
}

// TestDamagedTimesAreRefused wherever they are damaged.
func TestDamagedTimesAreRefused(t *testing.T) {
	tr := timed(0, false)
	data, err := record.EncodeTimes([]record.Times{record.TimesOf(&tr, 0)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		bad := []byte(strings.Clone(string(data)))
		bad[i] ^= 0xff
		if list, err := record.DecodeTimes(bad); err == nil {
			t.Fatalf("byte %d changed: read %+v", i, list)
		}
	}
	if _, err := record.DecodeTimes(data[:len(data)-3]); err == nil {
		t.Error("half of it was read")
	}
}
