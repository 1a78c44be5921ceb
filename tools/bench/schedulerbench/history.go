package schedulerbench

import (
	"fmt"

	"temper/internal/inference/scheduler"
)

// replayHistory lets the scheduler see the lengths of past steps, as trajectories of an
// engine that takes them all and leaves.
func (s *simulation) replayHistory() error {
	if len(s.History) == 0 {
		return nil
	}
	if _, err := s.sched.Handle(0, scheduler.Join{Engine: "past", Capacity: 1 << 30}); err != nil {
		return err
	}
	for i, step := range s.History {
		for len(step) > 0 {
			n := 1
			for n < len(step) && step[n].Problem == step[0].Problem {
				n++
			}
			if err := s.replayProblem(step[:n], i); err != nil {
				return fmt.Errorf("past step %d: %w", i, err)
			}
			step = step[n:]
		}
	}
	_, err := s.sched.Handle(0, scheduler.Leave{Engine: "past"})
	return err
}

// replayProblem has the trajectories of a problem end, with their turns.
func (s *simulation) replayProblem(rollouts []Rollout, step int) error {
	trajectories := make([]scheduler.Trajectory, 0, len(rollouts))
	for i := range rollouts {
		trajectories = append(trajectories, s.trajectory(&rollouts[i], step))
	}
	decisions, err := s.sched.Handle(0, scheduler.Submit{Trajectories: trajectories})
	if err != nil {
		return err
	}
	attempts := map[string]int{}
	for _, d := range decisions {
		attempts[d.ID] = d.Attempt
	}
	for i := range rollouts {
		if err := s.replayRollout(&rollouts[i], attempts[rollouts[i].ID]); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulation) replayRollout(r *Rollout, attempt int) error {
	context := r.Prompt
	for j, n := range r.Turns {
		context += n
		if j == len(r.Turns)-1 {
			break
		}
		if _, err := s.sched.Handle(0, scheduler.Pause{ID: r.ID, Attempt: attempt, Context: context}); err != nil {
			return err
		}
		context += r.Tools[j].Tokens
		decisions, err := s.sched.Handle(0, scheduler.Resume{ID: r.ID, Attempt: attempt, Context: context})
		if err != nil {
			return err
		}
		attempt = decisions[0].Attempt
	}
	_, err := s.sched.Handle(0, scheduler.Finish{ID: r.ID, Attempt: attempt, Context: context})
	return err
}
