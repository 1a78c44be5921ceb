package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"temper/internal/rl"
)

// Times are what one trajectory took: of a call of the sampler, where several calls
// sampled it one after another. All numbers are microseconds.
type Times struct {
	Problem string `json:"p"`
	Rollout int    `json:"k"`
	// Part counts the calls before this one that sampled a part of the trajectory.
	Part   int         `json:"part,omitempty"`
	Sample int64       `json:"s"`
	Tool   int64       `json:"t"`
	Turns  []TurnTimes `json:"u"`
}

// TurnTimes are the times of a turn; Generate is 0 when an earlier part has generated it.
type TurnTimes struct {
	Begin    int64       `json:"b"`
	Generate int64       `json:"g"`
	Calls    []CallTimes `json:"c,omitempty"`
}

// CallTimes are the times of a tool call. Queue to StderrBytes are 0 when no program ran.
type CallTimes struct {
	Begin       int64 `json:"b"`
	Took        int64 `json:"t"`
	Queue       int64 `json:"q,omitempty"`
	Wall        int64 `json:"w,omitempty"`
	CPU         int64 `json:"c,omitempty"`
	PeakMemory  int64 `json:"m,omitempty"` // bytes
	StdoutBytes int   `json:"so,omitempty"`
	StderrBytes int   `json:"se,omitempty"`
}

// TimesOf are the times of a trajectory that this process has sampled.
func TimesOf(t *rl.Trajectory, part int) Times {
	out := Times{
		Problem: t.ProblemID, Rollout: t.Rollout, Part: part, Sample: t.SampleTime.Microseconds(), Tool: t.ToolTime.Microseconds(),
		Turns: make([]TurnTimes, len(t.Turns)),
	}
	for i, turn := range t.Turns {
		u := TurnTimes{Begin: turn.Begin.Microseconds(), Generate: turn.Generated.Microseconds()}
		for _, c := range turn.Calls {
			u.Calls = append(u.Calls, CallTimes{
				Begin: c.Spent.Begin.Microseconds(), Took: c.Spent.Took.Microseconds(), Queue: c.Spent.Queue.Microseconds(),
				Wall: c.Spent.Wall.Microseconds(), CPU: c.Spent.CPU.Microseconds(), PeakMemory: c.Spent.PeakMemory,
				StdoutBytes: c.Spent.StdoutBytes, StderrBytes: c.Spent.StderrBytes,
			})
		}
		out.Turns[i] = u
	}
	return out
}

// Took is the whole time of the trajectory.
func (t *Times) Took() time.Duration { return time.Duration(t.Sample+t.Tool) * time.Microsecond }

// JoinTimes makes one of the times of a trajectory: parts follow each other, and of two
// times of one part, which two attempts have sampled, the first one counts.
func JoinTimes(parts []Times) (out Times, ok bool) {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b Times) int { return cmp.Compare(a.Part, b.Part) })
	parts = slices.CompactFunc(parts, func(a, b Times) bool { return a.Part == b.Part })
	if len(parts) == 0 || parts[0].Part != 0 || parts[len(parts)-1].Part != len(parts)-1 {
		return Times{}, false // a part is missing
	}
	for _, p := range parts {
		out.join(p)
	}
	return out, true
}

// join appends a part.
func (t *Times) join(p Times) {
	before := t.Sample + t.Tool
	t.Problem, t.Rollout = p.Problem, p.Rollout
	t.Sample += p.Sample
	t.Tool += p.Tool
	for i, turn := range p.Turns {
		if i >= len(t.Turns) {
			t.Turns = append(t.Turns, TurnTimes{})
		}
		u := &t.Turns[i]
		if turn.Generate == 0 && len(turn.Calls) == len(u.Calls) {
			continue
		}
		if u.Generate == 0 {
			u.Begin = before + turn.Begin
		}
		u.Generate += turn.Generate
		if len(turn.Calls) > 0 && len(u.Calls) == 0 {
			u.Calls = slices.Clone(turn.Calls)
			for k := range u.Calls {
				u.Calls[k].Begin += before
			}
		}
	}
}

// Output is what the program of a call has printed.
type Output struct {
	Problem string `json:"p"`
	Rollout int    `json:"k"`
	Turn    int    `json:"u"`
	Call    int    `json:"c"`
	Stdout  string `json:"so,omitempty"`
	Stderr  string `json:"se,omitempty"`
}

// OutputsOf returns the kept outputs of the calls of a trajectory that printed anything.
func OutputsOf(t *rl.Trajectory) []Output {
	var out []Output
	for i, turn := range t.Turns {
		for k, c := range turn.Calls {
			if c.Spent.Stdout != "" || c.Spent.Stderr != "" {
				out = append(out, Output{Problem: t.ProblemID, Rollout: t.Rollout, Turn: i, Call: k, Stdout: c.Spent.Stdout, Stderr: c.Spent.Stderr})
			}
		}
	}
	return out
}

// Times and other data beside the trajectories of a step are stored as a first line that
// names them, and one zstd frame of JSON lines.
const (
	timesMagic   = "temper times 1\n"
	outputsMagic = "temper outputs 1\n"
)

// EncodeTimes writes times.
func EncodeTimes(list []Times) ([]byte, error) { return encodeLines(timesMagic, list) }

// DecodeTimes reads times.
func DecodeTimes(data []byte) ([]Times, error) { return decodeLines[Times](timesMagic, data) }

// EncodeOutputs writes outputs.
func EncodeOutputs(list []Output) ([]byte, error) { return encodeLines(outputsMagic, list) }

// DecodeOutputs reads outputs.
func DecodeOutputs(data []byte) ([]Output, error) { return decodeLines[Output](outputsMagic, data) }

func encodeLines[T any](first string, list []T) ([]byte, error) {
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for i := range list {
		if err := to.Encode(&list[i]); err != nil {
			return nil, err
		}
	}
	return enc.EncodeAll(lines.Bytes(), []byte(first)), nil
}

var errSideRecord = errors.New("a record beside trajectories is damaged")

func decodeLines[T any](first string, data []byte) ([]T, error) {
	text, err := unframe(first, data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSideRecord, err)
	}
	var out []T
	for from := json.NewDecoder(bytes.NewReader(text)); from.More(); {
		var one T
		if err := from.Decode(&one); err != nil {
			return nil, fmt.Errorf("%w: %w", errSideRecord, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// unframe takes the frame behind a first line apart.
func unframe(first string, data []byte) ([]byte, error) {
	data, ok := bytes.CutPrefix(data, []byte(first))
	if !ok {
		return nil, fmt.Errorf("want a first line %q", first)
	}
	dec, err := newDecoder()
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(data, nil)
}

// JoinAll joins the times of all trajectories of a list, by problem and rollout, and leaves
// out those that are not known in full.
func JoinAll(list []Times) []Times {
	list = slices.Clone(list)
	same := func(a, b *Times) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Rollout, b.Rollout))
	}
	slices.SortStableFunc(list, func(a, b Times) int { return same(&a, &b) })
	var out []Times
	for len(list) > 0 {
		n := 1
		for n < len(list) && same(&list[0], &list[n]) == 0 {
			n++
		}
		if t, ok := JoinTimes(list[:n]); ok {
			out = append(out, t)
		}
		list = list[n:]
	}
	return out
}
