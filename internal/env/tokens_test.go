package env_test

import (
	"testing"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/tool/builtin"
)

// TestDialoguesAreShort holds the token economy of the small recipes: CPU
// training pays for each token.
func TestDialoguesAreShort(t *testing.T) {
	var all []chat.Dialogue
	byLevel := map[int][]chat.Dialogue{}
	for level := 1; level <= 3; level++ {
		for i := range 300 {
			d, err := env.Chase{}.Dialogue(1, i, level)
			if err != nil {
				t.Fatal(err)
			}
			byLevel[level] = append(byLevel[level], d)
			all = append(all, d)
		}
	}
	for _, merges := range []int{128, 200} {
		tok, err := chat.TrainTokenizer(chat.Config{}, all, merges)
		if err != nil {
			t.Fatal(err)
		}
		f, err := chat.New(tok, chat.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for level, most := range map[int]float64{1: 50, 2: 65, 3: 75} {
			total, longest := 0, 0
			for _, d := range byLevel[level] {
				tr, err := f.Render(d)
				if err != nil {
					t.Fatal(err)
				}
				total += len(tr.Tokens())
				longest = max(longest, len(tr.Tokens()))
			}
			mean := float64(total) / float64(len(byLevel[level]))
			t.Logf("%d merges, %d hops: mean %.1f tokens, longest %d, vocabulary %d", merges, level, mean, longest, tok.VocabSize())
			if mean > most {
				t.Errorf("%d merges, %d hops: mean %.1f tokens, want at most %.0f", merges, level, mean, most)
			}
		}
		full := chat.Dialogue{Messages: perfect(3)}
		tr, err := f.Render(full)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d merges: a perfect 3-hop dialogue takes %d tokens", merges, len(tr.Tokens()))
	}
}

// perfect is the dialogue that RL should arrive at.
func perfect(hops int) []chat.Message {
	keys := []string{"k396", "k116", "k802", "k275"}
	messages := []chat.Message{{Role: chat.RoleUser, Content: keys[0] + "?"}}
	for i := range hops {
		messages = append(messages,
			chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print(db['" + keys[i] + "'])"}.Arguments()}),
			chat.Message{Role: chat.RoleTool, Content: keys[i+1]})
	}
	return append(messages, chat.Message{Role: chat.RoleAssistant, Content: "<answer>275</answer>"})
}
