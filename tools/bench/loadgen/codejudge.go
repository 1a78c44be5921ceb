package loadgen

import (
	"context"
	"slices"
	"strings"
	"time"

	"temper/sandbox"
)

// submission and judgement are Code-Judge's words for a call and its answer.
type submission struct {
	ID       string `json:"sub_id"`
	Type     string `json:"type"`
	Solution string `json:"solution"`
	Input    string `json:"input"`
}

type judgement struct {
	ID         string  `json:"sub_id"`
	RunSuccess *bool   `json:"run_success"`
	Cost       float64 `json:"cost"`
	Stdout     string  `json:"stdout"`
	Stderr     string  `json:"stderr"`
	Reason     string  `json:"reason"`
}

func (t *httpTarget) codeJudge(ctx context.Context, calls []Call) []Outcome {
	subs := make([]submission, len(calls))
	for i, call := range calls {
		subs[i] = submission{ID: call.ID, Type: "python", Solution: call.Program.Code, Input: call.Program.Stdin}
	}
	if t.api == APICodeJudgeRun {
		var answer judgement
		if o := t.post(ctx, "/run", subs[0], &answer); o.Class == Lost {
			return []Outcome{o}
		}
		return []Outcome{answer.outcome(calls[0])}
	}
	in := struct {
		Submissions []submission `json:"submissions"`
	}{subs}
	var answer struct {
		Results []judgement `json:"results"`
	}
	if o := t.post(ctx, "/run/long-batch", in, &answer); o.Class == Lost {
		return slices.Repeat([]Outcome{o}, len(calls))
	}
	out := make([]Outcome, len(calls))
	for i, call := range calls {
		if i >= len(answer.Results) {
			out[i] = lost(KindNoAnswer, "the batch has fewer results than submissions")
			continue
		}
		out[i] = answer.Results[i].outcome(call)
	}
	return out
}

// outcome judges an answer by what its program is known to do. Code-Judge has
// reasons where a sandbox has statuses, and two of them mean that it gave up.
func (j judgement) outcome(call Call) Outcome {
	res := sandbox.Result{Status: sandbox.StatusOK, Stdout: j.Stdout, Stderr: j.Stderr}
	res.Usage.Wall = time.Duration(j.Cost * float64(time.Second))
	switch {
	case j.RunSuccess == nil:
		return lost("undecodable", "no run_success")
	case j.ID != call.ID:
		return Outcome{Class: Wrong, Kind: KindForeign, Detail: "sub_id is " + j.ID}
	case j.Reason == "worker_timeout":
		res.Status = sandbox.StatusTimeLimit
	case j.Reason != "":
		return lost(j.Reason, strings.TrimSpace(j.Stderr))
	case !*j.RunSuccess:
		res.Status = sandbox.StatusError
	}
	return call.judge(res)
}
