package chatclient_test

import (
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"temper/internal/openai/chatclient"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain \u00e9\u4e16\U0001f600\n\tx": "plain \u00e9\u4e16\U0001f600\n\tx",
		"\x1b[31mred\x1b]0;title\x07":       `\x1b[31mred\x1b]0;title\x07`,
		"a\rb\x7f\x00":                      `a\x0db\x7f\x00`,
		"\u009b2J\u202eevil\u2066":          `\u009b2J\u202eevil\u2066`,
		"half \xe2\x82 of it":               `half \xe2\x82 of it`,
	} {
		if got := chatclient.Escape(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// FuzzEscape: nothing that a model says reaches a terminal but text.
func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[0m\u009b\u202e")
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, text string) {
		got := chatclient.Escape(text)
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q is shown as %q", text, got)
			}
		}
	})
}

// TestHostileModels: not from words, reasoning, names, programs or results of tools.
func TestHostileModels(t *testing.T) {
	const evil = "\x1b[2J\u009b31m\x07\r"
	var out strings.Builder
	p := chatclient.NewPrinter(&out, false)
	e := chatclient.Executed{Name: evil, Arguments: `{"code": "` + `\u001b[2J` + `"}`}
	for _, d := range []chatclient.Delta{
		{Reasoning: evil}, {Content: evil}, {Executed: []chatclient.Executed{e}},
		{Executed: []chatclient.Executed{{Status: "ok", Content: evil}}},
		{Executed: []chatclient.Executed{{Name: "x", Arguments: evil}}},
	} {
		if err := p.Show(d); err != nil {
			t.Fatal(err)
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b\x07\r") {
		t.Errorf("shown %q", out.String())
	}
}

// TestColours: the only escape sequences are those of the printer, and each ends.
func TestColours(t *testing.T) {
	var out strings.Builder
	p := chatclient.NewPrinter(&out, true)
	for _, d := range []chatclient.Delta{
		{Reasoning: "hm"}, {Content: "I run it."},
		{Executed: []chatclient.Executed{{Name: "python", Arguments: `{"code": "1/0"}`}}},
		{Executed: []chatclient.Executed{{Name: "python", Status: "error", Content: "ZeroDivisionError"}}},
	} {
		if err := p.Show(d); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); strings.Count(got, "\x1b[0m")*2 != strings.Count(got, "\x1b[") || !strings.Contains(got, "\x1b[31m--- result: error\x1b[0m") {
		t.Errorf("shown %q", got)
	}
}

// TestConsole talks over lines: several make one question, commands are none, a failure is
// a note, and the end of the input ends the talk.
func TestConsole(t *testing.T) {
	s := &scripted{turns: []chatclient.Turn{says("one"), says("two\n"), {Content: "thr", Finish: "length"}}}
	talk, err := chatclient.New(s, nil, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	console := chatclient.Console{
		In:  strings.NewReader("first\\\nsecond\n\n/reset\n/what\nnext\nlast\n"),
		Out: &out, Printer: chatclient.NewPrinter(&out, false), Prompt: "> ", Interrupts: make(chan os.Signal),
	}
	if err := console.Run(t.Context(), talk); err != nil {
		t.Fatal(err)
	}
	want := "> ... one\n> > [the talk begins anew]\n> [/exit ends, /reset forgets the talk; a \\ at the end of a line lets another one follow; ctrl-c cuts an answer, ctrl-d ends]\n" +
		"> two\n> thr\n[the answer met the limit of tokens]\n> \n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if got := s.asked[0][0].Content; got != "first\nsecond" {
		t.Errorf("asked %q", got)
	}
	if n := len(s.asked[1]); n != 1 {
		t.Errorf("after a reset the model reads %d messages", n)
	}
	out.Reset()
	console.In = strings.NewReader("/exit\nnever\n")
	if err := console.Run(t.Context(), talk); err != nil || len(s.asked) != 3 {
		t.Errorf("%v after %d questions", err, len(s.asked))
	}
}

// TestStatesOfAServerAreEscaped: a server that runs calls itself says what came of them.
func TestStatesOfAServerAreEscaped(t *testing.T) {
	var b strings.Builder
	if err := chatclient.NewPrinter(&b, false).Show(chatclient.Delta{Executed: []chatclient.Executed{{Name: "n", Status: "ok\x1b[2J\x1b]0;owned\a\n--- call n", Content: "c"}}}); err != nil {
		t.Fatal(err)
	}
	if want := "--- result: ok\\x1b[2J\\x1b]0;owned\\x07 --- call n\n    c\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
