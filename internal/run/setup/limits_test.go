package setup_test

import (
	"fmt"
	"strings"
	"testing"

	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/runtest"
)

// TestWhatIsTooLongToBeSent is refused with the limit and the way out.
func TestWhatIsTooLongToBeSent(t *testing.T) {
	long := runtest.Recipe + "rollout: {system_prompt: " + strings.Repeat("x", run.MaxConfigBytes) + "}\n"
	_, err := runtest.Open(t, runtest.Fill(t, nil), run.Input{RunID: "x", Config: runtest.Text(t, long)})
	runtest.WantFault(t, err, fault.InvalidConfig, "want at most 48KiB: shorten rollout.system_prompt, or name a file")

	var lines strings.Builder
	for i := range 600 {
		fmt.Fprintf(&lines, `{"id": "%0190d", "env": "chase", "prompt": "k%d?", "answer": "1"}`+"\n", i, i)
	}
	err = prepareError(t, map[string]string{"stages[0].data.path": write(t, lines.String()), "rl.problems_per_step": "256", "stages[1].data.num": "300"})
	runtest.WantFault(t, err, fault.Dataset, "stages[0].data: the ids of a step's 256 problems take 49408B, want at most 48KiB")
	err = prepareError(t, map[string]string{"stages[0].data.path": write(t, lines.String()), "rl.problems_per_step": "250", "stages[1].data.num": "300"})
	if err != nil {
		t.Errorf("just small enough: %v", err)
	}
}
