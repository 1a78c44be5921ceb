package ui

import (
	"context"
	"fmt"

	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run/record"
)

// SpentView is what a trajectory took, in seconds since it began.
type SpentView struct {
	Sample float64     `json:"sample_s"`
	Tool   float64     `json:"tool_s"`
	Turns  []SpentTurn `json:"turns"`
}

// SpentTurn is what a turn took: its generation with the wait for the engine, and its calls.
type SpentTurn struct {
	Begin    float64     `json:"begin_s"`
	Generate float64     `json:"generate_s"`
	Calls    []SpentCall `json:"calls"`
}

// SpentCall is what a call took: Took is what the trajectory waited; Queue, Wall, CPU and
// PeakMemory are as measured by the sandbox, 0 where no program ran.
type SpentCall struct {
	Begin       float64 `json:"begin_s"`
	Took        float64 `json:"took_s"`
	Queue       float64 `json:"queue_s"`
	Wall        float64 `json:"wall_s"`
	CPU         float64 `json:"cpu_s"`
	PeakMemory  int64   `json:"peak_memory_bytes"`
	StdoutBytes int     `json:"stdout_bytes"`
	StderrBytes int     `json:"stderr_bytes"`
	// Stdout and Stderr are the whole outputs, where the run keeps them.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// addTimes adds what the run knows of the times of a trajectory, and the whole outputs of
// its calls.
func (s *Server) addTimes(ctx context.Context, h *history.Run, t *rl.Trajectory, out *TrajectoryView) error {
	all, err := s.times(ctx, h, t.Step)
	if err != nil {
		return err
	}
	times, ok := all[timesKey{t.ProblemID, t.Rollout}]
	if !ok {
		return nil
	}
	out.Times, out.Spent = "", spentOf(times)
	outputs, err := history.RolloutsOf(h).OutputsOf(ctx, t.Step, t.ProblemID, t.Rollout)
	for _, o := range outputs {
		if o.Turn < len(out.Spent.Turns) && o.Call < len(out.Spent.Turns[o.Turn].Calls) {
			c := &out.Spent.Turns[o.Turn].Calls[o.Call]
			c.Stdout, c.Stderr = o.Stdout[:min(len(o.Stdout), maxText)], o.Stderr[:min(len(o.Stderr), maxText)]
		}
	}
	return err
}

// timesKey is a trajectory of a step.
type timesKey struct {
	problem string
	rollout int
}

// timesBytes is about what the times of a trajectory take in memory.
const timesBytes = 500

// times are those of all trajectories of a step. Those of a step that has ended are kept.
func (s *Server) times(ctx context.Context, h *history.Run, step int) (map[timesKey]record.Times, error) {
	key := fmt.Sprintf("times/%s/%d", h.ID(), step)
	if known, ok := s.cache.get(key); ok {
		return known.(map[timesKey]record.Times), nil //nolint:forcetypeassert // the key is of this type alone
	}
	_, ended, _ := history.RolloutsOf(h).Record(ctx, step) // before its times: it may end while they are read
	list, err := history.RolloutsOf(h).Times(ctx, step)
	if err != nil {
		return nil, err
	}
	out := make(map[timesKey]record.Times, len(list))
	for _, t := range record.JoinAll(list) {
		out[timesKey{t.Problem, t.Rollout}] = t
	}
	if ended {
		s.cache.put(key, out, timesBytes*(1+len(out)))
	}
	return out, nil
}

func spentOf(t record.Times) *SpentView {
	out := &SpentView{Sample: seconds(t.Sample), Tool: seconds(t.Tool), Turns: []SpentTurn{}}
	for _, u := range t.Turns {
		turn := SpentTurn{Begin: seconds(u.Begin), Generate: seconds(u.Generate), Calls: []SpentCall{}}
		for _, c := range u.Calls {
			turn.Calls = append(turn.Calls, SpentCall{
				Begin: seconds(c.Begin), Took: seconds(c.Took), Queue: seconds(c.Queue), Wall: seconds(c.Wall), CPU: seconds(c.CPU),
				PeakMemory: c.PeakMemory, StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
			})
		}
		out.Turns = append(out.Turns, turn)
	}
	return out
}
