package evaluate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/evaluate"
	"temper/internal/rl"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// words is a vocabulary of whole words; those in angle brackets are control tokens.
type words []string

func (w words) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(w[id])
	}
	return b.String()
}

func (w words) IsSpecial(id int32) bool { return strings.HasPrefix(w[id], "<") && w[id] != "<b>" }

// dialogue is a trajectory whose tokens are the parts of a text, each with its entropy;
// tool's parts begin with a minus.
func dialogue(parts []string, entropy []float32) (*rl.Trajectory, []float32, words) {
	t := &rl.Trajectory{ProblemID: "p", Tokens: []int32{0}, PromptTokens: 1, LossMask: []bool{false}}
	vocabulary, out := words{"prompt"}, []float32{9}
	open := false
	for i, part := range parts {
		said, tool := strings.CutPrefix(part, "-")
		vocabulary = append(vocabulary, said)
		at := len(t.Tokens)
		t.Tokens, t.LossMask, out = append(t.Tokens, int32(at)), append(t.LossMask, !tool), append(out, entropy[i])
		switch {
		case !tool && !open:
			t.Turns = append(t.Turns, rl.Turn{Start: at, End: at + 1})
			open = true
		case !tool:
			t.Turns[len(t.Turns)-1].End = at + 1
		case open:
			t.Turns[len(t.Turns)-1].Calls = []rl.ToolCall{{}}
			open = false
		}
	}
	return t, out, vocabulary
}

func judged(t *testing.T, parts []string, entropy []float32, o evaluate.Options) evaluate.Trajectory {
	t.Helper()
	tr, e, v := dialogue(parts, entropy)
	got, err := evaluate.JudgeTokens(tr, e, make([]float32, len(e)), v, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestClassesOfTokens(t *testing.T) {
	parts := []string{"But", " first", "<tool_call>", "x=", "1", "</tool_call>", "<|im_end|>", "-6", "-\n", "So", " it", " is", "<answer>", "6", "</answer>"}
	entropy := []float32{2, 0, 0, 0.5, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0.1, 0}
	got := judged(t, parts, entropy, evaluate.Options{Top: 0.25, Window: 2})
	var classes, top []string
	for _, k := range got.Tokens {
		classes = append(classes, string(k.Class))
		if k.Top {
			top = append(top, k.Text)
		}
	}
	want := []string{"reasoning", "reasoning", "format", "code", "code", "format", "format", "", "", "reflection", "reflection", "reasoning", "format", "answer", "format"}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	// A quarter of 13 tokens, and the earlier one of two equals.
	if diff := cmp.Diff([]string{"But", "So", " it"}, top); diff != "" {
		t.Errorf("most uncertain (-want +got):\n%s", diff)
	}
	if since := got.Tokens[10].Since; since != 1 || got.Tokens[0].Since != -1 {
		t.Errorf("token 10 stands %d after the tool, the first one %d; want 1 and -1", since, got.Tokens[0].Since)
	}
	s := evaluate.SummarizeEntropy([]evaluate.Trajectory{got, got})
	if s.All.Tokens != 26 || s.All.Top != 6 || s.Before.Tokens != 14 || s.Trajectories != 2 {
		t.Errorf("summary %+v", s)
	}
	sum := 0
	for _, c := range s.Classes {
		sum += c.Tokens
		if c.Class == evaluate.Reflection && (c.Tokens != 4 || c.Top != 4 || c.Entropy != 2.5) {
			t.Errorf("reflection %+v", c)
		}
	}
	after := 0
	for _, d := range s.After {
		after += d.Tokens
	}
	if sum != 26 || after != 12 {
		t.Errorf("%d tokens in classes, %d after tools; want 26 and 12", sum, after)
	}
	want = []string{"reasoning but 2", "reflection it 2", "reflection so 2"}
	var said []string
	for _, w := range s.Words {
		said = append(said, string(w.Class)+" "+w.Text+" "+string(rune('0'+w.Count)))
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
}

// A mark that is made of ordinary tokens opens a call all the same, and one that is never
// closed reaches to the end of the turn.
func TestMarksOfOrdinaryTokens(t *testing.T) {
	got := judged(t, []string{"a", "x <tool", "_call>", "code", " end"}, make([]float32, 5), evaluate.Options{Top: 1, Window: 8})
	var classes []evaluate.Class
	for _, k := range got.Tokens {
		classes = append(classes, k.Class)
	}
	want := []evaluate.Class{evaluate.Reasoning, evaluate.Reasoning, evaluate.Reasoning, evaluate.Code, evaluate.Code}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHostileTextStaysText(t *testing.T) {
	tr := judged(t, []string{"<b>", "-</pre><script>alert(1)</script>", "\x1b[31m\u202e\x00"}, []float32{1, 0, 2}, evaluate.Options{Top: 0.5, Window: 1})
	var out bytes.Buffer
	page := evaluate.Page{Title: "<i>t</i>", Options: evaluate.Options{Top: 0.5, Window: 1}, Summary: evaluate.SummarizeEntropy([]evaluate.Trajectory{tr}), Trajectories: []evaluate.Trajectory{tr}}
	if err := evaluate.WriteHTML(&out, page); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<i>", "<b>", "\x1b", "\u202e", "\x00"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if !strings.Contains(out.String(), `\u202e`) || strings.Count(out.String(), "<span") != 3 {
		t.Errorf("page:\n%s", out.String())
	}
}

// TestPage: the page of a step is the golden one, which the tests of the dashboard's page open in a browser.
func TestPage(t *testing.T) {
	long := strings.Repeat("averylongnamewithoutanyspace_", 8)
	parts := []string{"First", " we", " compute", "<tool_call>", "print(", long, ")", "</tool_call>", "-<tool_response>", "-" + long, "-</tool_response>", "But", " wait", " " + long, " so", "\n", "42"}
	entropy := []float32{2, 0.5, 1, 0, 0.25, 3, 0.125, 0, 0, 0, 0, 2.5, 1.5, 2.25, 0.75, 0, 0.0625}
	tr := judged(t, parts, entropy, evaluate.Options{Top: 0.4, Window: 8})
	tr.ProblemID, tr.Rollout = long, 12
	page := evaluate.Page{
		Title: "Run " + long + ", step 2", Notes: []string{"1 trajectories of " + long + ", temperature 1."}, Options: evaluate.Options{Top: 0.4, Window: 8},
		Summary: evaluate.SummarizeEntropy([]evaluate.Trajectory{tr}), Trajectories: []evaluate.Trajectory{tr},
	}
	var out bytes.Buffer
	if err := evaluate.WriteHTML(&out, page); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "page.html")
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if diff := cmp.Diff(string(want), out.String()); diff != "" || err != nil {
		t.Errorf("want -, got + (%v; -update writes it)\n%s", err, diff)
	}
}

// TestNothingToCount: a class without tokens has no entropy, and lists stay lists.
func TestNothingToCount(t *testing.T) {
	tr := judged(t, []string{"<tool_call>", "f()", "</tool_call>"}, []float32{1, 0, 2}, evaluate.Options{Top: 0.5, Window: 1})
	page := evaluate.Page{Options: evaluate.Options{Top: 0.5, Window: 1}, Summary: evaluate.SummarizeEntropy([]evaluate.Trajectory{tr})}
	var out bytes.Buffer
	if err := evaluate.WriteHTML(&out, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<td>reflection</td><td>0</td><td>-</td>", "None of them is a word"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, out.String())
		}
	}
	data, err := json.Marshal(page.Summary)
	if err != nil || strings.Contains(string(data), "null") {
		t.Errorf("%s, %v", data, err)
	}
}

func TestJudgeRefuses(t *testing.T) {
	tr, e, v := dialogue([]string{"a"}, []float32{1})
	if _, err := evaluate.JudgeTokens(tr, e[:1], e, v, evaluate.Options{Top: 1, Window: 1}); err == nil {
		t.Error("one entropy for two tokens is accepted")
	}
	for _, o := range []evaluate.Options{{Top: 0, Window: 1}, {Top: 1.1, Window: 1}, {Top: 1}} {
		if o.Validate() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
