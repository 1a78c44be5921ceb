package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/cli"
)

// TestDataCommands imports problems and dialogues, and checks, shows, mixes and
// decontaminates what comes out.
func TestDataCommands(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) string {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	run := func(args ...string) (string, error) {
		cmd := dataCommand()
		var out bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	want := func(status int, text string, args ...string) {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			out += err.Error()
		}
		if cli.ExitCode(err) != status || !strings.Contains(out, text) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", strings.Join(args, " "), cli.ExitCode(err), status, text, out)
		}
	}
	sums := put("sums.jsonl", `{"question":"One plus one?","answer":"2"}`+"\n"+`{"question":"one plus  one","answer":"2"}`+"\n"+`{"question":"Two plus two plus three plus four plus five?","answer":"16"}`+"\n")
	want(0, "3 rows read = 2 kept + 1 dropped + 0 bad", "import", sums, "--out", at("train.jsonl"), "--license", "mit")
	want(2, "exists already", "import", sums, "--out", at("train.jsonl"))
	want(2, "--out is missing", "import", sums)
	want(2, "no layout \"gsm9k\"", "import", sums, "--out", at("x.jsonl"), "--layout", "gsm9k")
	want(2, "--answers is \"some\"", "import", sums, "--out", at("x.jsonl"), "--answers", "some")
	want(2, "too many bad rows: 1, and --max-bad is 0", "import", put("bad.jsonl", `{"question":"a?","answer":"1"}`+"\n{\n"), "--out", at("y.jsonl"))
	want(0, "2 rows of sums.jsonl (mit)", "check", at("train.jsonl"))
	want(2, "in an evaluation set: 2 rows", "check", at("train.jsonl"), "--against", at("train.jsonl"))
	want(2, "too long: 1 rows", "check", at("train.jsonl"), "--max-tokens", "60")
	want(0, "1 whose prompt is in a benchmark + 0", "decontaminate", at("train.jsonl"), "--against", put("bench.jsonl", `{"problem":"One plus one","answer":2}`+"\n"), "--out", at("clean.jsonl"))
	chats := put("chats.jsonl", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":1}}}]}],"tools":[{"name":"f"}]}`+"\n")
	want(0, "1 tool of its own", "show", chats, "--spans")
	want(0, `#  "<tool_call>`, "show", chats)
	want(2, "has 1 rows, not 2", "show", chats, "--row", "2")
	want(0, "4 rows in", "mix", at("train.jsonl")+"=2", "--out", at("mix.jsonl"))
	want(2, "=NaN: want FILE=SHARE with a number from 0", "mix", "--by", "weights", at("train.jsonl")+"=NaN", "--out", at("mix2.jsonl"))
	want(2, "=0: want FILE=SHARE with a number above 0", "mix", at("train.jsonl")+"=0", "--out", at("mix2.jsonl"))
	for _, part := range []string{"mixed.jsonl", "cleaned.jsonl", "imported.jsonl"} { // an input with the name of what is written meanwhile
		put(part+".part", `{"question":"One plus one?","answer":"2"}`+"\n")
	}
	const isRead = "is read, and would be replaced: choose another output"
	want(2, isRead, "mix", at("train.jsonl")+"=1", at("mixed.jsonl.part")+"=1", "--out", at("mixed.jsonl"))
	want(2, isRead, "decontaminate", at("cleaned.jsonl.part"), "--against", at("bench.jsonl"), "--out", at("cleaned.jsonl"))
	want(2, isRead, "decontaminate", sums, "--against", at("cleaned.jsonl.part"), "--out", at("cleaned.jsonl"))
	want(2, isRead, "import", at("imported.jsonl.part"), "--out", at("imported.jsonl"))
	for _, part := range []string{"mixed.jsonl", "cleaned.jsonl", "imported.jsonl"} {
		if info, err := os.Stat(at(part + ".part")); err != nil || info.Size() == 0 {
			t.Errorf("%s.part was emptied: %v", part, err)
		}
	}
	want(2, "nothing is left: 2 rows read", "decontaminate", at("train.jsonl"), "--against", at("train.jsonl"), "--out", at("none.jsonl"))
	if _, err := os.Stat(at("none.jsonl")); !os.IsNotExist(err) {
		t.Errorf("a file without a row was written: %v", err)
	}
	want(2, "the weights of the mix sum to nothing", "mix", "--by", "weights", at("train.jsonl")+"=0", "--out", at("mix2.jsonl"))
}

// TestImportOverwrites: an output of an earlier import is replaced by a whole one alone, and
// a file that is read never is.
func TestImportOverwrites(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = `{"question":"One plus one?","answer":"2"}` + "\n", `{"question":"Two plus two?","answer":"4"}` + "\n"
	put("first.jsonl", first)
	put("second.jsonl", second)
	put("bad.jsonl", second+"{\n")
	put("samples.jsonl", `{"prompt":"Two plus two?","response":"<answer>\\boxed{4}</answer>"}`+"\n")
	put("out.jsonl", first)
	put("half.jsonl.part", first)
	imports := func(status int, out string, args ...string) {
		t.Helper()
		cmd := dataCommand()
		var said bytes.Buffer
		cmd.SetArgs(append([]string{"import", "--overwrite", "--out", at(out)}, args...))
		cmd.SetOut(&said)
		cmd.SetErr(&said)
		if err := cmd.ExecuteContext(t.Context()); cli.ExitCode(err) != status {
			t.Errorf("import of %v into %s: status %d, want %d: %v\n%s", args, out, cli.ExitCode(err), status, err, &said)
		}
	}
	has := func(name, want string) {
		t.Helper()
		data, err := os.ReadFile(at(name))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s is %q, want %q in it: %v", name, data, want, err)
		}
	}
	if err := os.Symlink(at("first.jsonl"), at("link.jsonl")); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"first.jsonl", "link.jsonl"} {
		imports(2, out, at("first.jsonl"))
		has("first.jsonl", first)
	}
	imports(2, "half.jsonl", at("half.jsonl.part"), "--layout", "gsm8k")
	has("half.jsonl.part", first)
	imports(2, "samples.jsonl", at("second.jsonl"), "--samples", at("samples.jsonl"), "--min-matches", "1")
	has("samples.jsonl", "boxed{4}")
	imports(2, "first.jsonl", at("second.jsonl"), "--against", at("first.jsonl"))
	has("first.jsonl", first)
	imports(2, "out.jsonl", at("bad.jsonl"))
	has("out.jsonl", first)
	imports(0, "out.jsonl", at("second.jsonl"))
	has("out.jsonl", `"prompt":"Two plus two?"`)
	has("out.jsonl.report.md", "1 rows read = 1 kept")
}

// TestDataCommandsDoNotSteer: what a row holds reaches the terminal as text, with the signs
// that would steer it written as escapes.
func TestDataCommandsDoNotSteer(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const steer = `\u001b]0;owned\u0007`
	for name, text := range map[string]string{
		"own.jsonl":    `{"id":"a","env":"math","prompt":"2+2?","answer":"4","source":"` + steer + `","license":"` + steer + `"}`,
		"fields.jsonl": `{"` + steer + `":1}`,
		"bad.jsonl":    `{"id":"a","env":"math","prompt":"2+2?","answer":"4","` + steer + `":1}`,
	} {
		if err := os.WriteFile(at(name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"import", at("own.jsonl"), "--out", at("out.jsonl")}, {"import", at("fields.jsonl"), "--out", at("none.jsonl")}, {"check", at("own.jsonl")}, {"check", at("bad.jsonl")},
	} {
		cmd := dataCommand()
		var out bytes.Buffer
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		if said := out.String(); strings.ContainsAny(said, "\x1b\a") || !strings.Contains(said, "owned") {
			t.Errorf("%v says %q", args, said)
		}
	}
	report, err := os.ReadFile(at("out.jsonl.report.md"))
	if err != nil || bytes.ContainsAny(report, "\x1b\a") || !bytes.Contains(report, []byte(`\x1b]0;owned\x07`)) {
		t.Errorf("the report is %q, %v", report, err)
	}
}
