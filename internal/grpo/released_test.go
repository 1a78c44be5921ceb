package grpo_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/sandbox/status"
)

// The text of a response and the patterns in it are those of the release. The test counts
// them with regular expressions as the release does, and compares what our records give.
var (
	toolResult  = regexp.MustCompile(`(?s)<tool_response>.*?</tool_response>`)
	answerBlock = regexp.MustCompile(`(?s)<answer>.*?</answer>`)
	wholeTurn   = regexp.MustCompile(`(?s)<\|im_start\|>assistant.*?<\|im_end\|>`)
)

// releasePenalties are the release's functions calc_error_ratio_penalty_weights and
// calc_format_penalty_weights on the text of a response.
func releasePenalties(text string) (pErr, pFormat float64) {
	found := toolResult.FindAllString(text, -1)
	if len(found) == 0 {
		pErr = 0.5
	} else {
		for _, f := range found {
			if strings.Contains(strings.ToLower(f), "error") {
				pErr += 1 / float64(len(found))
			}
		}
	}
	pairs, turns := len(answerBlock.FindAllString(text, -1)), len(wholeTurn.FindAllString(text, -1))
	if pairs == 0 || strings.Count(text, "<answer>") != pairs || strings.Count(text, "</answer>") != pairs || turns == 0 {
		return pErr, 1
	}
	return pErr, min(1, float64(pairs-1)/float64(turns))
}

// said is a turn of a made dialogue: text, and the code and the result of its calls.
type said struct {
	text  string
	calls [][2]string
	cut   bool
}

// recorded is a dialogue as our record and as the release's text.
func recorded(turns ...said) (rl.Trajectory, string) {
	t := rl.Trajectory{StopReason: rl.StopAnswered}
	var text strings.Builder
	for i, s := range turns {
		if i > 0 {
			text.WriteString("<|im_start|>assistant\n<reason>")
		}
		text.WriteString(s.text)
		t.AnswerTags += len(answerBlock.FindAllString(s.text, -1))
		turn := rl.Turn{Finish: rl.FinishStop}
		for _, c := range s.calls {
			text.WriteString("<tool_call>" + c[0] + "</tool_call>")
			turn.Calls = append(turn.Calls, rl.ToolCall{ID: "id", Arguments: c[0], Response: c[1], Status: status.OK})
		}
		if s.cut {
			turn.Finish, t.StopReason = rl.FinishLength, rl.StopMaxTokens
			t.Turns = append(t.Turns, turn)
			break
		}
		text.WriteString("<|im_end|>")
		if len(s.calls) > 0 {
			text.WriteString("<|im_start|>user")
			for _, c := range s.calls {
				text.WriteString("<tool_response>" + c[1] + "</tool_response>")
			}
			text.WriteString("<|im_end|>")
		}
		t.Turns = append(t.Turns, turn)
	}
	return t, text.String()
}

func TestPenaltiesOfTheRelease(t *testing.T) {
	released := grpo.RoC{Mode: grpo.ModeReleased}
	call := func(response string) [][2]string { return [][2]string{{"f()", response}} }
	for name, turns := range map[string][]said{
		"no call: turn 1 is none":      {{text: "<answer>1</answer>"}},
		"one call":                     {{calls: call("3")}, {text: "<answer>3</answer>"}},
		"an exception":                 {{calls: call("NameError at line 1")}, {calls: call("3")}, {text: "<answer>3</answer>"}},
		"a printed word":               {{calls: call("the error is 0.1")}, {text: "<answer>3</answer>"}},
		"a time limit is none":         {{calls: call("TimeLimit: the program took too long")}, {text: "<answer>3</answer>"}},
		"a broken call is none":        {{calls: call("Failed to decode tool call: Expecting value")}, {text: "<answer>3</answer>"}},
		"two answers in one more turn": {{text: "<answer>1</answer>", calls: call("3")}, {text: "<answer>3</answer>"}},
		"three answers in three turns": {{calls: call("3")}, {text: "<answer>1</answer><answer>2</answer>", calls: call("4")}, {text: "<answer>3</answer>"}},
		"an answer in a result":        {{calls: call("<answer>9</answer>")}, {calls: call("4")}, {text: "<answer>3</answer>"}},
		"an answer in code":            {{calls: [][2]string{{"print('<answer>9</answer>')", "4"}}}, {text: "<answer>3</answer>"}},
		"a lone tag in a result":       {{calls: call("</answer>")}, {text: "<answer>3</answer>"}},
		"no answer":                    {{calls: call("3")}, {text: "three"}},
		"two calls in a turn":          {{calls: [][2]string{{"a", "1"}, {"b", "KeyError: 1"}}}, {text: "<answer>3</answer>"}},
		"cut in its second turn":       {{calls: call("3")}, {text: "<answer>3</answer> and", cut: true}},
	} {
		tr, text := recorded(turns...)
		wantErr, wantFormat := releasePenalties(text)
		if pErr, pFormat := released.Penalties(&tr); pErr != wantErr || pFormat != wantFormat {
			t.Errorf("%s: %v, %v; the release has %v, %v for\n%s", name, pErr, pFormat, wantErr, wantFormat, text)
		}
	}
}

// TestCallsBeyondTheLimit are errors with paper. The release never answers them, so that
// they do not exist with released. What did not fit into the response does not either.
func TestCallsBeyondTheLimit(t *testing.T) {
	tr, _ := recorded(said{calls: [][2]string{{"f()", "3"}, {"g()", ""}}}, said{text: "<answer>3</answer>"})
	tr.Turns[0].Calls[1] = rl.ToolCall{Arguments: "g()", Status: status.Refused, Response: "Refused: " + rl.SurplusReason(1)}
	for mode, want := range map[string]float64{grpo.ModePaper: 0.5, grpo.ModeReleased: 0} {
		if got, _ := (grpo.RoC{Mode: mode}).Penalties(&tr); got != want {
			t.Errorf("%s: p_err %v, want %v", mode, got, want)
		}
	}
	if got := grpo.AsReleased(&tr); got.Results != 1 || got.Errors != 0 {
		t.Errorf("%+v, want one result", got)
	}
	tr.Turns[0].Calls[1].Response = "Refused: code is missing, an error" // another refusal is answered there, too
	if got := grpo.AsReleased(&tr); got.Results != 2 || got.Errors != 1 {
		t.Errorf("%+v, want two results and an error", got)
	}
	unseen, _ := recorded(said{calls: [][2]string{{"f()", "3"}}}, said{calls: [][2]string{{"f()", "ValueError"}}})
	unseen.StopReason = rl.StopMaxTokens
	if got := grpo.AsReleased(&unseen); got.Results != 1 || got.Errors != 0 {
		t.Errorf("%+v, want the result that was shown alone", got)
	}
}

// TestGroupsBelowG are dropped by the release, and kept whole as the paper has it.
func TestGroupsBelowG(t *testing.T) {
	g := rl.Group{Problem: rl.Problem{ID: "p"}, Trajectories: []rl.Trajectory{made("p", 0, 1), made("p", 1, 0), made("p", 2, 1)}}
	for _, c := range []struct {
		roc  grpo.RoC
		size int
		fate grpo.Fate
		kept int
	}{
		{grpo.RoC{Enabled: true, Mode: grpo.ModeReleased}, 4, grpo.FateTooSmall, 0},
		{grpo.RoC{Enabled: true, Mode: grpo.ModeReleased}, 3, grpo.FateKept, 3},
		{grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}, 4, grpo.FateKept, 3},
		{grpo.RoC{Mode: grpo.ModeReleased}, 4, grpo.FateKept, 3}, // plain GRPO
	} {
		got, err := grpo.BuildGroup(g, grpo.Config{GroupSize: c.size, RoC: c.roc, Seed: 1})
		if err != nil || got.Fate != c.fate || len(got.Kept) != c.kept || len(got.Samples) != c.kept {
			t.Errorf("%+v, G %d: %s with %d and %d, %v; want %s with %d", c.roc, c.size, got.Fate, len(got.Kept), len(got.Samples), err, c.fate, c.kept)
		}
	}
}

// TestTableOfTheRelease is section 1.3 of the recipe row by row: what the keys of its
// training script do, and that ours of the same meaning do it.
func TestTableOfTheRelease(t *testing.T) {
	group := func(rewards string, calls func(i int) string) rl.Group {
		g := rl.Group{Problem: rl.Problem{ID: "p"}}
		for i, r := range rewards {
			tr := made("p", i, float64(r-'0'))
			tr.Turns = []rl.Turn{{Start: 1, End: 2, Finish: rl.FinishStop}, {Start: 2, End: 3, Finish: rl.FinishStop}}
			tr.Turns[0].Calls = []rl.ToolCall{{ID: "x", Status: status.OK, Response: calls(i)}}
			g.Trajectories = append(g.Trajectories, tr)
		}
		return g
	}
	clean := func(int) string { return "3" }
	kept := func(g rl.Group, size int, roc grpo.RoC) (rollouts []int, fate grpo.Fate) {
		got, err := grpo.BuildGroup(g, grpo.Config{GroupSize: size, RoC: roc, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range got.Kept {
			rollouts = append(rollouts, tr.Rollout)
		}
		return rollouts, got.Fate
	}
	script := grpo.RoC{Enabled: true, Mode: grpo.ModeReleased, MinPositive: 2, MinNegative: 2}
	for rewards, want := range map[string]grpo.Fate{"1111": grpo.FateAllCorrect, "0000": grpo.FateAllWrong, "0111": grpo.FateKept} {
		if _, got := kept(group(rewards, clean), 2, grpo.RoC{Enabled: true, Mode: grpo.ModeReleased}); got != want {
			t.Errorf("reject_equal_reward of %s: %s, want %s", rewards, got, want)
		}
	}
	wrong := func(i int) string { return []string{"NameError", "3", "ZeroDivisionError", "3", "3", "3", "3", "3"}[i] }
	if got, _ := kept(group("11110000", wrong), 4, script); !slices.Equal(got, []int{1, 3, 4, 5}) {
		t.Errorf("roc_error_ratio: %v, want the positives without the word error and the first failures", got)
	}
	answers := group("11110000", clean)
	answers.Trajectories[0].AnswerTags, answers.Trajectories[2].AnswerTags = 2, 0
	if got, _ := kept(answers, 4, script); !slices.Equal(got, []int{1, 3, 4, 5}) {
		t.Errorf("roc_answer_format: %v, want the positives with one answer", got)
	}
	for rewards, want := range map[string]int{"0111111111111111": 1, "0011111111111111": 2} {
		got, _ := kept(group(rewards, clean), 8, script)
		if n := slices.IndexFunc(got, func(r int) bool { return rewards[r] == '1' }); n != want {
			t.Errorf("min_zero_reward_trace_num: %d failures of %s are kept, want %d", n, rewards, want)
		}
	}
	if got, _ := kept(group("0000000000000011", clean), 8, script); !slices.Equal(got[6:], []int{14, 15}) {
		t.Errorf("min_non_zero_reward_trace_num: %v, want both positives", got)
	}
	if got, _ := kept(group("0000111100001111", clean), 8, script); len(got) != 8 {
		t.Errorf("down_sample_to_n: %d, want 8", len(got))
	}
	off := grpo.RoC{}
	if got, _ := kept(group("0000111100001111", clean), 16, off); len(got) != 16 {
		t.Errorf("do_down_sampling off, n samples for n: %d, want all", len(got))
	}
}
