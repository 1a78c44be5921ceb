package ui

import (
	"context"

	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run/record"
)

// SpentView holds the times of a trajectory, in seconds since it began.
type SpentView struct {
	Sample float64     `json:"sample_s"`
	Tool   float64     `json:"tool_s"`
	Turns  []SpentTurn `json:"turns"`
}

// SpentTurn holds the times of a turn: its generation, including the wait for the engine, and
// its calls.
type SpentTurn struct {
	Begin    float64     `json:"begin_s"`
	Generate float64     `json:"generate_s"`
	Calls    []SpentCall `json:"calls"`
}

// SpentCall holds the times of a call: Took is how long the trajectory waited; the sandbox
// measures Queue, Wall, CPU and PeakMemory, which are 0 where no program ran.
type SpentCall struct {
	Begin       float64 `json:"begin_s"`
	Took        float64 `json:"took_s"`
	Queue       float64 `json:"queue_s"`
	Wall        float64 `json:"wall_s"`
	CPU         float64 `json:"cpu_s"`
	PeakMemory  int64   `json:"peak_memory_bytes"`
	StdoutBytes int     `json:"stdout_bytes"`
	StderrBytes int     `json:"stderr_bytes"`
	// Stdout and Stderr hold the outputs, where the run keeps them.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// addTimes adds the recorded times of a trajectory and the whole outputs of its calls.
func (sp *stepPages) addTimes(ctx context.Context, h *history.Run, t *rl.Trajectory, out *TrajectoryView) error {
	all, err := sp.reader.times(ctx, h, t.Step)
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
