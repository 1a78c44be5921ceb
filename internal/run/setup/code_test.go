package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
)

const (
	goodTool   = "def find(key: str):\n    'Find it.'\n    print(db[key])\n"
	goodReward = "def reward(key, answer):\n    return key == answer\n"
)

func writeCode(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func withCode(tool, reward string) map[string]string {
	return map[string]string{"rollout.tools": "[python, {path: " + tool + "}]", "reward.path": reward, "model.max_context": "1000"}
}

// TestRunKeepsItsCode: a run has the bytes that its preparation read, whatever becomes of
// the files; so has its fork.
func TestRunKeepsItsCode(t *testing.T) {
	tool, reward := writeCode(t, "book.py", goodTool), writeCode(t, "reward.py", goodReward)
	h := runtest.Prepare(t, memblob.New(), "demo", withCode(tool, reward))
	ready := readReady(t, h)
	named := false
	for _, f := range ready.Files {
		named = named || f.Key == run.CodeKey(h.Layout) && len(f.SHA256) == 64
	}
	if !named {
		t.Errorf("the prepared files leave out the code: %+v", ready.Files)
	}
	for _, path := range []string{tool, reward} {
		if err := os.WriteFile(path, []byte("def other(a: int): 'O.'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := run.Load(t.Context(), h.Store, h.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Code.Tools) != 1 || r.Code.Tools[0].Text != goodTool || r.Code.Reward == nil || r.Code.Reward.Text != goodReward {
		t.Errorf("code %+v", r.Code)
	}
	h.StoreBatches(t, 1, 2)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	fork := h.Fork(t, "again", run.ForkFrom{RunID: "demo", Step: 2}, nil)
	if child, err := run.Load(t.Context(), h.Store, fork.Ref); err != nil || child.Code.Tools[0].Text != goodTool {
		t.Errorf("the fork has the code %+v (%v)", child.Code, err)
	}
	begun, err := r.Format.Begin("q")
	if err != nil {
		t.Fatal(err)
	}
	if prompt := r.Format.Tokenizer().Decode(begun.Tokens()); !strings.Contains(prompt, `"name": "find"`) {
		t.Errorf("the prompt lacks the schema:\n%s", prompt)
	}
}

func readReady(t *testing.T, h *runtest.Run) run.Prepared {
	t.Helper()
	ready, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return ready
}

// TestBadCodeIsNamed: all faults of all files at once, before a run has begun.
func TestBadCodeIsNamed(t *testing.T) {
	tool := writeCode(t, "book.py", "def find(key):\n    pass\ndef find(key: str):\n    'F.'\n")
	huge := writeCode(t, "huge.py", "#"+strings.Repeat("x", 1<<20))
	same := writeCode(t, "same.py", goodTool)
	set := withCode(tool, writeCode(t, "reward.py", "x = 1\n"))
	set["rollout.tools"] = "[{path: " + tool + "}, {path: /not/there.py}, {path: " + huge + "}, {path: " + same + "}]"
	store := memblob.New()
	_, err := runtest.Open(t, store, run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe), Set: set})
	if fault.Of(err) != fault.InvalidConfig {
		t.Fatalf("error %v of kind %q", err, fault.Of(err))
	}
	for _, want := range []string{
		"rollout.tools[0]: " + tool + ": line 1: find: parameter key has no type hint", "line 1: find: has no docstring", "line 3: defines find a second time, after line 1",
		"rollout.tools[1]: /not/there.py: cannot be read", "rollout.tools[2]: " + huge + ": has 1048577 bytes, above the limit of 65536",
		"rollout.tools[3]: " + same + ": find is a function of " + tool + ", too", "reward.path: ", "has no function reward",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}
