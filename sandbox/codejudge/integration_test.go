//go:build integration

package codejudge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"temper/sandbox/codejudge"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// TestRealPrograms holds what the original's own tests ask of it, in Python.
func TestRealPrograms(t *testing.T) {
	j, err := jail.New(t.Context(), jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.New(t.Context(), pool.Config{Zygotes: 1, Slots: 8, Queue: 4}, pool.FromJail(j))
	if err != nil {
		t.Fatal(errors.Join(err, j.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(context.WithoutCancel(t.Context())), j.Close()); err != nil {
			t.Error(err)
		}
	})
	h := codejudge.NewHandler(p, codejudge.Config{Execution: time.Second})
	tests := []struct {
		name, solution, input, expected string
		success, ran                    bool
		reason, stdout, stderr          string
	}{
		{"right", "print(input())", "a", "a", true, true, "", "a\n", ""},
		{"wrong", "print(input())", "a", "b", false, true, "", "a\n", ""},
		{"missing input", "print(input())", "", "a", false, false, "", "", "EOFError"},
		{"timeout", "from time import sleep\nprint('in')\nsleep(10)", "a", "a", false, false, "worker_timeout", "in\nSuicide from timeout.\n", ""},
		{"spinning", "while True: pass", "", "", false, false, "worker_timeout", "Suicide from timeout.\n", ""},
		{"working directory", "with open('test.txt', 'w') as f:\n    f.write('Hello, world!')", "", "", true, true, "", "", ""},
		{"outside of it", "open('../test.txt', 'w')", "", "", false, false, "", "", "Error"},
		{"exit zero", "import sys\nprint(1)\nsys.exit(0)", "", "1", true, true, "", "1\n", ""},
		{"exit three", "import sys\nsys.exit(3)", "", "", false, false, "", "", ""},
		{"marker of the original", "print('@@E')\nprint('@@D9')", "", "@@E\n@@D9", true, true, "", "@@E\n@@D9\n", ""},
		{"no UTF-8", "import sys\n_ = sys.stdout.buffer.write(b'\\xff')", "", "", false, true, "", "\ufffd", ""},
		{"future import", "from __future__ import annotations\nprint(1)", "", "1", true, true, "", "1\n", ""},
	}
	var parts []string
	const rounds = 20 // more than the pool admits at once
	for range rounds {
		for _, c := range tests {
			part, err := json.Marshal(map[string]string{
				"type": "python", "sub_id": c.name, "solution": c.solution, "input": c.input, "expected_output": c.expected,
			})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, string(part))
		}
	}
	code, text := post(t, h, "/run/long-batch", `{"type":"batch","submissions":[`+strings.Join(parts, ",")+`]}`)
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	var answer struct {
		Results []struct {
			SubID                  string `json:"sub_id"`
			Success                bool
			RunSuccess             bool `json:"run_success"`
			Stdout, Stderr, Reason string
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Results) != len(parts) {
		t.Fatalf("%d results, %v", len(answer.Results), err)
	}
	for i, r := range answer.Results {
		c := tests[i%len(tests)]
		good := r.SubID == c.name && r.Success == c.success && r.RunSuccess == c.ran && r.Reason == c.reason && r.Stdout == c.stdout
		if !good || !strings.Contains(r.Stderr, c.stderr) {
			t.Errorf("%s: %s", c.name, fmt.Sprintf("%+v", r))
		}
	}
}
