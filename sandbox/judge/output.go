package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"temper/sandbox"
)

// Compare says when two outputs are the same.
type Compare string

// Ways to compare.
const (
	CompareTrimmed Compare = ""       // but for white space at both ends
	CompareExact   Compare = "exact"  // byte for byte
	CompareLines   Compare = "lines"  // but for white space at the end of lines and of the output
	CompareTokens  Compare = "tokens" // but for the amount of white space anywhere
)

// Output runs a program and compares what it prints.
type Output struct {
	// ID names the job and is derived from what it is about, so that a retry is
	// the same call; Run is the key of fairness.
	ID, Run  string
	Code     string
	Stdin    string
	Fixture  string
	Expected string
	Compare  Compare
	Limits   sandbox.Limits // but for Output, which follows from Expected
}

// Limits of a job.
const (
	maxSource   = 1 << 20  // what an executor takes
	maxExpected = 8 << 20  // half of what an executor keeps of a stream
	outputSlack = 64 << 10 // what may be printed beyond what is expected
)

func (o Output) judge(ctx context.Context, j *Judge) (Verdict, error) {
	if err := o.validate(); err != nil {
		return Verdict{}, err
	}
	if len(o.Code) > maxSource {
		return Verdict{Method: MethodRefused, Reason: fmt.Sprintf("code of %d bytes is above the limit of %d", len(o.Code), maxSource)}, nil
	}
	limits := o.Limits
	limits.Output = int64(len(o.Expected)) + outputSlack
	res, err := j.execute(ctx, sandbox.Request{
		ID: o.ID, Run: o.Run, Code: o.Code, Stdin: o.Stdin, Fixture: o.Fixture, Limits: limits,
	})
	if err != nil {
		return Verdict{}, err
	}
	switch res.Status {
	case sandbox.StatusOK:
		equal := o.Compare.same(res.Stdout, o.Expected)
		v := Verdict{Equal: equal, Method: MethodOutput}
		if !equal {
			v.Reason = "the output differs"
		}
		return v, nil
	case sandbox.StatusRefused: // the code is within the limits: it is the job
		return Verdict{}, fmt.Errorf("%w: job %s: %s", ErrInvalid, o.ID, res.Reason)
	default:
		return Verdict{Method: MethodOutput, Reason: "the program ended with status " + string(res.Status)}, nil
	}
}

func (o Output) validate() error {
	switch {
	case o.ID == "":
		return fmt.Errorf("%w: it has no ID", ErrInvalid)
	case len(o.Expected) > maxExpected:
		return fmt.Errorf("%w: job %s: expected output of %d bytes is above the limit of %d", ErrInvalid, o.ID, len(o.Expected), maxExpected)
	case !slices.Contains([]Compare{CompareTrimmed, CompareExact, CompareLines, CompareTokens}, o.Compare):
		return fmt.Errorf("%w: job %s: unknown comparison %q", ErrInvalid, o.ID, o.Compare)
	}
	return nil
}

func (c Compare) same(got, want string) bool {
	switch c {
	case CompareExact:
		return got == want
	case CompareLines:
		return slices.Equal(lines(got), lines(want))
	case CompareTokens:
		return slices.Equal(strings.Fields(got), strings.Fields(want))
	case CompareTrimmed:
		return strings.TrimSpace(got) == strings.TrimSpace(want)
	default:
		return false
	}
}

// lines splits s without white space at the ends of lines and empty last lines.
func lines(s string) []string {
	all := strings.Split(strings.TrimRightFunc(s, unicode.IsSpace), "\n")
	for i, line := range all {
		all[i] = strings.TrimRightFunc(line, unicode.IsSpace)
	}
	return all
}
