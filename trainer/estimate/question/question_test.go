package question_test

import (
	"strings"
	"testing"

	"temper/trainer/estimate/question"
)

// TestStatedGoesFirst: a configuration answers what the user left open, and nothing else.
func TestStatedGoesFirst(t *testing.T) {
	ask := func(stated string) question.Question {
		t.Helper()
		q := question.Question{Model: "0.6b", Devices: "CPU", Run: "../../../configs/ci.yaml", Minibatches: 1}
		q.Request.Length, q.Request.Rows = 4096, 1
		if err := q.Resolve(func(flag string) bool { return flag == stated }); err != nil {
			t.Fatal(err)
		}
		return q
	}
	if q := ask(""); q.Request.Length != 128 || q.Request.Model.HiddenSize != 64 || !strings.Contains(q.About, "ci: 4 problems of 8 rollouts") {
		t.Errorf("request %+v about %q, want that of the configuration", q.Request, q.About)
	}
	if q := ask("tokens"); q.Request.Length != 4096 || q.Request.Model.HiddenSize != 64 {
		t.Errorf("request %+v, want the stated tokens", q.Request)
	}
	if q := ask("model"); q.Request.Length != 128 || q.Request.Model.HiddenSize != 1024 {
		t.Errorf("request %+v, want the stated model", q.Request)
	}
}

// TestResolveReportsEveryMistake, with the flag in front.
func TestResolveReportsEveryMistake(t *testing.T) {
	q := question.Question{Model: "15b", Devices: "8xMI400", Mesh: "3", Minibatches: 0}
	err := q.Resolve(func(string) bool { return true })
	for _, want := range []string{"--model: ", "--devices: ", "--mesh: ", "--minibatches: 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v wants %q", err, want)
		}
	}
}
