package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"temper/sandbox"
)

// Function is a call of a user's reward function: a program that prints one line of JSON,
// {"reward": number, "details": object} or {"bad": reason}. It reads the model's output on
// standard input.
type Function struct {
	// ID names the call. It depends only on the scored answer, so that a retry is the
	// same call; Run is the key of fairness.
	ID, Run string
	// Program is the code, Fixture the code before it, Stdin the data.
	Program, Fixture, Stdin string
	Limits                  sandbox.Limits
}

// Score is the result of a reward function.
type Score struct {
	Reward float64
	// Details are a JSON object; empty for none.
	Details string
}

// Failure means that a reward function gave no reward: it raised, ran into a limit or
// returned another type. Another attempt fails in the same way.
type Failure struct {
	// Line is the failing line of the program, 0 when it is unknown.
	Line   int
	Reason string
}

// Error implements error.
func (f *Failure) Error() string { return f.Reason }

// maxDetails bounds the details of a reward.
const maxDetails = 4 << 10

// Score runs a reward function. It is idempotent for its ID. Errors: *Failure,
// sandbox.ErrUnavailable, ctx.Err().
func (j *Judge) Score(ctx context.Context, f Function) (Score, error) {
	res, err := j.execute(ctx, sandbox.Request{
		ID: f.ID, Run: f.Run, Code: f.Program, Fixture: f.Fixture, Stdin: f.Stdin, Limits: f.Limits,
	})
	if err != nil {
		return Score{}, err
	}
	if res.Status != sandbox.StatusOK {
		return Score{}, failureOf(res)
	}
	var said struct {
		Reward  *float64        `json:"reward"`
		Details json.RawMessage `json:"details"`
		Bad     string          `json:"bad"`
	}
	lines := strings.Split(strings.TrimSpace(res.Stdout), "\n")
	if json.Unmarshal([]byte(lines[len(lines)-1]), &said) != nil || said.Bad == "" && said.Reward == nil {
		return Score{}, &Failure{Reason: "ended without a result"}
	}
	if said.Bad != "" {
		return Score{}, &Failure{Reason: said.Bad}
	}
	if math.IsNaN(*said.Reward) || math.IsInf(*said.Reward, 0) {
		return Score{}, &Failure{Reason: fmt.Sprintf("returned %v, want a finite number", *said.Reward)}
	}
	out := Score{Reward: *said.Reward, Details: string(said.Details)}
	if out.Details == "null" {
		out.Details = ""
	}
	if len(out.Details) > maxDetails {
		return Score{}, &Failure{Reason: fmt.Sprintf("returned details of %d bytes, above the limit of %d", len(out.Details), maxDetails)}
	}
	return out, nil
}

// failureOf returns the Failure of a program that did not end well.
func failureOf(res sandbox.Result) *Failure {
	f := &Failure{Reason: string(res.Status)}
	switch {
	case res.Error != nil:
		f.Line, f.Reason = res.Error.Line, res.Error.Type
		if res.Error.Message != "" {
			f.Reason += ": " + res.Error.Message
		}
	case res.Reason != "":
		f.Reason += ": " + res.Reason
	case res.Status == sandbox.StatusError:
		f.Reason = fmt.Sprintf("ended with exit status %d", res.ExitCode)
	}
	return f
}
