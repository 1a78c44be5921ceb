package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/internal/tool/builtin"
	"temper/trainer/weights/hf"
)

// chatTools renders what the template of the Qwen2.5 Instruct models renders.
const chatTools = "../../chat/testdata/templates/chatml-tools.jinja"

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// withRStar2 are the overrides of a run with the prompt of rStar2-Agent.
func withRStar2() map[string]string {
	return map[string]string{"rollout.chat_template": "rstar2", "model.max_context": "4000", "stages[0].max_response_tokens": "900"}
}

// TestRunWithATemplate: prompts, calls, answers, dialogues, evaluation and the
// published policy of a run speak as rStar2-Agent does, and twice the same.
func TestRunWithATemplate(t *testing.T) {
	var first map[string]string
	for range 2 {
		h := runtest.Prepare(t, memblob.New(), "demo", withRStar2())
		r, _ := h.NewSampling(t)
		ids := h.Selected(t, 1, 1)
		sampled, err := r.SampleGroups(t.Context(), sampling.GroupsInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids, Policy: runtest.PolicyRef(0)}, r.NewProgress())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Evaluate(t.Context(), sampling.EvaluateInput{Run: h.Ref, Stage: 1, Policy: runtest.PolicyRef(0), Label: "before"}, r.NewProgress()); err != nil {
			t.Fatal(err)
		}
		if sampled.ToolCalls != sampled.Trajectories || sampled.InfraErrors > 0 {
			t.Errorf("sampled %+v, want a call of each trajectory", sampled)
		}
		content := runtest.Dump(t, h.Store)
		if first == nil {
			first = content
			checkTalk(t, h, ids)
			continue
		}
		delete(first, h.Layout.Data().Ready()) // holds the time that it took
		delete(content, h.Layout.Data().Ready())
		if diff := cmp.Diff(content, first); diff != "" {
			t.Errorf("the same run again: got -, want +\n%s", diff)
		}
	}
}

// checkTalk looks at what a run with the prompt of rStar2-Agent has stored.
func checkTalk(t *testing.T, h *runtest.Run, ids []string) {
	t.Helper()
	right := 0
	for _, id := range ids {
		for _, tr := range runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.Step(1).Group(id)) {
			call := tr.Turns[0].Calls[0]
			if program, err := builtin.ProgramOf(call.Arguments); err != nil || call.Name != builtin.ExecutePython || program.Input != "7" || !strings.Contains(tr.Text, "<|im_end|>\n<|im_start|>user\n<tool_response>\n"+call.Response+"\n</tool_response><|im_end|>\n<|im_start|>assistant\n<reason>") {
				t.Fatalf("call %+v in %q", call, tr.Text)
			}
			right += int(tr.Reward)
		}
	}
	if right == 0 {
		t.Error("no boxed answer was right")
	}
	for _, d := range runtest.ReadLines[chat.Dialogue](t, h.Store, h.Layout.SFT().Dialogues()) {
		last := d.Messages[len(d.Messages)-1].Content
		if !strings.HasPrefix(last, "<reason></reason><answer>\\boxed{") {
			t.Fatalf("dialogue ends with %q", last)
		}
	}
	m := runtest.Boot(h.Store, &runtest.Fate{})
	if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 1}); err != nil {
		t.Error(err)
	}
}

// TestPublishedPolicyHasTheTemplate that it was trained with, so that others
// prompt it as the run did.
func TestPublishedPolicyHasTheTemplate(t *testing.T) {
	model := runtest.StartModel()
	model.MaxPositionEmbeddings = 4096
	dir := runtest.WriteModel(t, model, func(files map[string][]byte) { files[hf.TemplateFile] = readFile(t, chatTools) })
	file := filepath.Join(t.TempDir(), "mine.jinja")
	if err := os.WriteFile(file, append([]byte("{#- mine -#}\n"), readFile(t, chatTools)...), 0o600); err != nil {
		t.Fatal(err)
	}
	for template, want := range map[string][]byte{"checkpoint": readFile(t, chatTools), file: readFile(t, file)} {
		set := map[string]string{"model.path": dir, "model.max_context": "3000", "rollout.chat_template": template}
		h := runtest.PrepareConfig(t, memblob.New(), "demo", runtest.StartRecipe, set)
		if template == file { // the run does not need it any more
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		_, published := learn(t, h)
		if got := readFile(t, filepath.Join(published, hf.TemplateFile)); string(got) != string(want) {
			t.Errorf("%s: published with template %q", template, got)
		}
		for _, d := range runtest.ReadLines[chat.Dialogue](t, h.Store, h.Layout.SFT().Dialogues()) {
			if strings.Contains(d.Messages[1].Content, "reason") {
				t.Errorf("%s: dialogue %+v", template, d)
			}
		}
	}
}

// TestTemplatesThatARunCannotUse are refused when the run is opened, before
// anything is stored.
func TestTemplatesThatARunCannotUse(t *testing.T) {
	shrinking := `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content if loop.last or m.role != 'assistant' else '') + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}{{ tools }}`
	write := func(name, source string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bare := runtest.WriteModel(t, runtest.StartModel(), func(files map[string][]byte) { delete(files, hf.TemplateFile) })
	for name, c := range map[string]struct {
		config, path, template string
		want                   []string
	}{
		"checkpoint without one": {runtest.StartRecipe, bare, "checkpoint", []string{"rollout.chat_template: ", "has no chat template: neither chat_template.jinja nor"}},
		"missing file":           {runtest.Recipe, "", filepath.Join(t.TempDir(), "no.jinja"), []string{"rollout.chat_template: ", "no.jinja: no such file"}},
		"no Jinja":               {runtest.Recipe, "", write("bad.jinja", "{% if %}"), []string{"rollout.chat_template: ", "bad.jinja: line 1"}},
		"not append-only":        {runtest.Recipe, "", write("shrinking.jinja", shrinking), []string{"rollout.chat_template: ", "is not append-only", "choose rollout.chat_template rstar2, or a copy"}},
		"no schema":              {runtest.Recipe, "", write("silent.jinja", strings.ReplaceAll(shrinking, "{{ tools }}", "")), []string{"does not show the schema of tool python; or set rollout.tools to [none]"}},
		"of the checkpoint, too": {runtest.StartRecipe, runtest.WriteModel(t, runtest.StartModel(), nil), "checkpoint", []string{"rollout.chat_template: ", "cannot be used for rollouts"}},
		"nowhere to take it":     {runtest.Recipe, "", "checkpoint", []string{"rollout.chat_template: is checkpoint, but model.path and model.run are empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := runtest.Fill(t, nil)
			set := map[string]string{"rollout.chat_template": c.template}
			if c.path != "" {
				set["model.path"] = c.path
			}
			_, err := runtest.Open(t, store, run.Input{RunID: "x", Config: runtest.Text(t, c.config), Set: set})
			runtest.WantFault(t, err, fault.InvalidConfig, c.want...)
			if left := runtest.Dump(t, store); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestTemplateThatIsLost is an error of every activity that needs it.
func TestTemplateThatIsLost(t *testing.T) {
	h := runtest.Prepare(t, memblob.New(), "demo", withRStar2())
	if err := h.Store.Delete(t.Context(), h.Layout.Dir()+"/chat_template.json"); err != nil {
		t.Fatal(err)
	}
	r, _ := h.NewSampling(t)
	_, err := r.SampleGroups(t.Context(), sampling.GroupsInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: h.Selected(t, 1, 1), Policy: runtest.PolicyRef(0)}, r.NewProgress())
	if err == nil || !strings.Contains(err.Error(), "chat template of run demo") {
		t.Errorf("error %v does not name the template", err)
	}
	if _, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Tokenizer()); err != nil {
		t.Error(err)
	}
}
