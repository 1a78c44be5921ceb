package placement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Settings are an operator's settings of the cluster.
type Settings struct {
	Policy Policy `json:"policy"`
	Rules  []Rule `json:"rules,omitempty"`
	// LookEvery is the time between two looks while nothing happens; 0 is 15 s.
	LookEvery time.Duration `json:"look_every_ns,omitempty"`
}

// Check lists what is wrong with the settings.
func (s Settings) Check() (wrong []string) {
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"start_patience", s.Policy.StartPatience}, {"loss_grace", s.Policy.LossGrace}, {"yield_patience", s.Policy.YieldPatience},
		{"age_every", s.Policy.AgeEvery}, {"tenure", s.Policy.Tenure}, {"look_every", s.LookEvery},
	} {
		if d.value < 0 || d.value > 0 && d.value < time.Second {
			wrong = append(wrong, fmt.Sprintf("%s: is %s, want 1s or more, or 0 for the default", d.key, d.value))
		}
	}
	seen := map[string]bool{}
	for _, r := range s.Rules {
		wrong = append(wrong, r.Check()...)
		if seen[r.Job] {
			wrong = append(wrong, fmt.Sprintf("%s: has two rules", r.Job))
		}
		seen[r.Job] = true
	}
	return wrong
}

// Service works on one cluster.
type Service struct {
	Backend  Backend
	Settings Settings
	// Loads measures the groups of the rules and the engines of runs; nil measures nothing.
	Loads func(context.Context) []Load
	// Runs names the open workflows of runs, and tells which of these holders have ended.
	Runs func(ctx context.Context, holders []string) (open, ended []string, err error)
}

// ObserveInput tells what the caller knows already.
type ObserveInput struct {
	// Known is the digest of what was seen last; "" for nothing.
	Known string `json:"known,omitempty"`
	// Holders are workflows of which is asked whether they have ended.
	Holders []string `json:"holders,omitempty"`
	// FindRuns asks for all runs that are open.
	FindRuns bool `json:"find_runs,omitempty"`
}

// Observed is the cluster as it is.
type Observed struct {
	// Digest stands for Nodes and Settings, which are left out where the caller has them.
	Digest   string    `json:"digest"`
	Nodes    []Node    `json:"nodes,omitempty"`
	Settings *Settings `json:"settings,omitempty"`
	Loads    []Load    `json:"loads,omitempty"`
	// Open are the workflows of runs that are open, Ended the holders that are not.
	Open  []string `json:"open,omitempty"`
	Ended []string `json:"ended,omitempty"`
}

// Observe looks at the cluster.
func (s *Service) Observe(ctx context.Context, in ObserveInput) (out Observed, err error) {
	nodes, err := s.Backend.Nodes(ctx)
	if err != nil {
		return out, fmt.Errorf("look at the cluster: %w", err)
	}
	if out.Digest, err = digest(nodes, s.Settings); err != nil {
		return out, err
	}
	if out.Digest != in.Known {
		out.Nodes, out.Settings = nodes, &s.Settings
	}
	if s.Loads != nil {
		out.Loads = s.Loads(ctx)
	}
	if s.Runs != nil && (in.FindRuns || len(in.Holders) > 0) {
		open, ended, err := s.Runs(ctx, in.Holders)
		if err != nil {
			return out, fmt.Errorf("look for runs: %w", err)
		}
		if out.Ended = ended; in.FindRuns {
			out.Open = open
		}
	}
	return out, nil
}

func digest(parts ...any) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		data, err := json.Marshal(p)
		if err != nil {
			return "", fmt.Errorf("digest of the cluster: %w", err)
		}
		_, _ = h.Write(data) // a hash takes all
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// Outcome is the result of an action. Refused says why nothing was done, where repeating
// does not help.
type Outcome struct {
	Refused string `json:"refused,omitempty"`
}

// refusedBy sorts the errors of a scheduler: one that may pass is returned to be
// retried, any other one is an outcome.
func refusedBy(err error) (Outcome, error) {
	if err == nil {
		return Outcome{}, nil
	}
	var full *NoCapacityError
	var conflict *ConflictError
	switch {
	case errors.As(err, &full), errors.As(err, &conflict), errors.Is(err, ErrDenied), errors.Is(err, ErrUnsupported),
		errors.Is(err, ErrNotExist), errors.Is(err, ErrOutOfBounds):
		return Outcome{Refused: err.Error()}, nil
	default:
		return Outcome{}, err
	}
}

// Start starts all jobs of a  Where one is refused, none is left.
func (s *Service) Start(ctx context.Context, d Decision) (Outcome, error) {
	for _, job := range d.Jobs {
		_, err := s.Backend.Start(ctx, job, 0)
		if err == nil {
			continue
		}
		out, err := refusedBy(err)
		if err != nil {
			return out, fmt.Errorf("start %s: %w", job.ID, err)
		}
		if _, err := s.Stop(ctx, d); err != nil {
			return out, err
		}
		return out, nil
	}
	return Outcome{}, nil
}

// Stop tells all jobs of a run to end, of this epoch and of earlier ones.
func (s *Service) Stop(ctx context.Context, d Decision) (Outcome, error) {
	for _, role := range Roles() {
		id := JobID(role, d.Run)
		if err := s.Backend.Stop(ctx, id, d.Epoch); err != nil {
			return Outcome{}, fmt.Errorf("stop %s: %w", id, err)
		}
	}
	return Outcome{}, nil
}

// Scale sets the count of a group.
func (s *Service) Scale(ctx context.Context, to Scaling) (Outcome, error) {
	return refusedBy(s.Backend.Scale(ctx, to))
}

// drainDeadline is how long what is left on a node that is emptied gets to end.
const drainDeadline = 10 * time.Minute

// Move closes, empties or opens a node.
func (s *Service) Move(ctx context.Context, d Decision) (Outcome, error) {
	if d.Do == EmptyNode {
		return refusedBy(s.Backend.Drain(ctx, d.Node, drainDeadline))
	}
	return refusedBy(s.Backend.SetEligible(ctx, d.Node, d.Do == OpenNode, d.Why))
}
