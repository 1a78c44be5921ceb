package env_test

import (
	"slices"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/rl"
	"temper/internal/tool/builtin"
)

// TestRecipesLeaveRoom: a dialogue of the teacher without a failed call fits the turns and
// tokens of every stage that meets its level. reckon leaves no spare turn, because one makes
// errors cheap.
func TestRecipesLeaveRoom(t *testing.T) {
	for name, spare := range map[string]bool{"reckon": false, "verbs": true} {
		run, err := config.LoadFile("../../configs/"+name+".yaml", nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []chat.Dialogue
		source := run.SFT.Data
		e, err := env.ByName(source.Env)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1500 {
			d, err := e.Dialogue(rl.Seed(run.Seed, "room"), i, source.Levels[i%len(source.Levels)])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		tok, err := chat.TrainTokenizer(chat.Config{}, all, run.Tokenizer.NumMerges)
		if err != nil {
			t.Fatal(err)
		}
		format, err := chat.New(tok, chat.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if name == "reckon" {
			tr, err := format.Render(luckless())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(tr.Tokens()); n > run.Model.MaxContext {
				t.Errorf("the longest dialogue takes %d tokens, and model.max_context is %d", n, run.Model.MaxContext)
			}
		}
		turns, tokens := map[int]int{}, map[int]int{} // the most that a level needs
		for i, d := range all {
			level := source.Levels[i%len(source.Levels)]
			if failed(d) {
				continue
			}
			tr, err := format.Render(d)
			if err != nil {
				t.Fatal(err)
			}
			turns[level] = max(turns[level], len(d.Messages)/2)
			tokens[level] = max(tokens[level], tr.ResponseTokens())
		}
		for _, stage := range run.Stages {
			needs := 0
			for _, level := range stage.Data.Levels {
				needs = max(needs, turns[level])
				if stage.MaxResponseTokens <= tokens[level] {
					t.Errorf("%s, stage %s: dialogues of level %d take %d tokens, and %d are allowed", name, stage.Name, level, tokens[level], stage.MaxResponseTokens)
				}
			}
			if stage.MaxTurns < needs || !spare && stage.MaxTurns > needs {
				t.Errorf("%s, stage %s: dialogues take %d turns, and %d are allowed", name, stage.Name, needs, stage.MaxTurns)
			}
		}
	}
}

// failed says whether a call of the dialogue failed.
func failed(d chat.Dialogue) bool {
	return slices.ContainsFunc(d.Messages, func(m chat.Message) bool {
		return m.Role == chat.RoleTool && brokenResult.MatchString(m.Content)
	})
}

// luckless is the longest dialogue of reckon: each call fails three times before it works.
func luckless() chat.Dialogue {
	const question, program = "up to 999 by 5 not 9?", "print(sum(i%5==0 and i%9>0 for i in range(1,999+1)))"
	d := chat.Dialogue{Messages: []chat.Message{{Role: chat.RoleUser, Content: "task 999?"}}}
	call := func(code, result string) {
		d.Messages = append(d.Messages, chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: code}.Arguments()}), chat.Message{Role: chat.RoleTool, Content: result})
	}
	for _, c := range [][2]string{{"print(task)", question}, {program, "2323400"}} {
		for range 3 {
			call("prnt"+strings.TrimPrefix(c[0], "print"), "NameError at line 1: name 'prnt' is not defined")
		}
		call(c[0], c[1])
	}
	d.Messages = append(d.Messages, chat.Message{Role: chat.RoleAssistant, Content: "<answer>2323400</answer>"})
	return d
}
