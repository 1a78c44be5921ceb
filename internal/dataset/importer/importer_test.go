package importer_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/internal/chat"
	"temper/internal/dataset"
	"temper/internal/dataset/importer"
	"temper/internal/dataset/layout"
	"temper/internal/rl"
)

// rowsOfFixture is the number of rows of each file in testdata.
const rowsOfFixture = 24

func run(t *testing.T, opts importer.Options, files ...string) (string, *importer.Report, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.jsonl")
	if opts.Env == "" {
		opts.Env = "math"
	}
	r, err := importer.Run(t.Context(), files, out, opts)
	if checkErr := r.Check(); checkErr != nil {
		t.Error(checkErr)
	}
	return out, r, err
}

func fixture(name string) string { return filepath.Join("testdata", name) }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEveryLayout imports a fixture of each layout and form, recognized by itself, and
// reads the output as a run does.
func TestEveryLayout(t *testing.T) {
	for _, c := range []struct {
		file, layout string
		kept         int64
		reason       layout.Reason // of the others
		sample       string        // in the output
	}{
		{"gsm8k.jsonl", "gsm8k", 24, "", `"answer":"19"`},
		{"gsm8k.parquet", "gsm8k", 24, "", `"answer":"1248"`},
		{"dapo.jsonl", "verl", 24, "", `"prompt":"Let $x$ be`},
		{"dapo.parquet", "verl", 24, "", `"source":"math_dapo"`},
		{"dapo_processed.jsonl", "verl", 24, "", `"answer":"3"`},
		{"rstar2.jsonl", "verl", 24, "", `"source":"rstar_math_dapo"`},
		{"math500.jsonl", "math500", 24, "", `\\frac{2}{3}`},
		{"math500.parquet", "math500", 24, "", `"level":5`},
		{"math500.json", "math500", 24, "", `\\frac{2}{3}`},
		{"aime2024.jsonl", "aime", 24, "", `"answer":"004"`},
		{"aime2025.jsonl", "aime", 24, "", `"answer":"10"`},
		{"matharena.jsonl", "aime", 24, "", `"answer":"1"`},
		{"openmath.jsonl", "openmath", 24, "", `"source":"aops_c4_high_school_math"`},
		{"messages.jsonl", "messages", 24, "", `{\"place\": \"Hill 1\", \"unit\": \"C\"}`},
		{"messages.parquet", "messages", 24, "", `{\"place\": \"Hill 0\", \"unit\": \"C\"}`},
		{"messages_plain.jsonl", "messages", 24, "", `"tools":[]`},
		{"messages_plain.parquet", "messages", 24, "", `"tools":[]`},
		{"prompt_completion.jsonl", "completion", 24, "", `groups of 2`},
		{"prompt_completion_chat.jsonl", "completion", 24, "", `"role":"assistant"`},
		{"alpaca.jsonl", "completion", 24, "", `\n\n9, 0, 4`},
		{"sharegpt.jsonl", "sharegpt", 24, "", `Dell.`},
		{"apigen_mt.jsonl", "sharegpt", 24, "", `"name":"move_booking"`},
		{"apigen_mt.parquet", "sharegpt", 24, "", `"name":"move_booking"`},
		{"toolace.jsonl", "toolace", 24, "", `{\"place\": \"cape 1\", \"magnitude\": 1.5, \"names\": [\"Vega\", \"Deneb\"]}`},
		{"glaive.jsonl", "glaive", 24, "", `{\"amount\": 1, \"to\": \"feet\"}`},
		{"xlam.jsonl", "xlam", 24, "", `"properties": {"grams": {"description": "The weight.", "type": "integer", "default": 100}`},
		{"magicoder_oss.jsonl", "magicoder", 20, layout.NotPython, `{\"code\": \"def add(xs):`},
		{"magicoder_evol.jsonl", "magicoder", 19, layout.NoCode, `print(n * n)`},
		{"temper.jsonl", "temper", 24, "", `"id":"own-3"`},
	} {
		t.Run(c.file, func(t *testing.T) {
			out, r, err := run(t, importer.Options{}, fixture(c.file))
			if err != nil {
				t.Fatal(err)
			}
			if r.Read != rowsOfFixture || r.Kept != c.kept || r.Files[0].Layout != c.layout {
				t.Errorf("%d read, %d kept as %s, want %d, %d, %s; dropped %v, bad %v", r.Read, r.Kept, r.Files[0].Layout, rowsOfFixture, c.kept, c.layout, r.Dropped, r.Bad)
			}
			if c.reason != "" && r.Dropped[c.reason] != rowsOfFixture-c.kept {
				t.Errorf("dropped %v, want the others for %s", r.Dropped, c.reason)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), c.sample) {
				t.Errorf("the output has no %s:\n%.1500s", c.sample, data)
			}
			readBack(t, r, data)
		})
	}
}

// readBack reads an output as a run does, and renders its dialogues by a chat template.
func readBack(t *testing.T, r *importer.Report, data []byte) {
	t.Helper()
	l, err := layout.ByName(r.Files[0].Layout)
	if err != nil {
		t.Fatal(err)
	}
	if l.Kind == layout.Problems {
		problems, err := dataset.ReadProblems(bytes.NewReader(data), "out")
		if err != nil || int64(len(problems)) != r.Kept {
			t.Fatalf("%d problems are read back, want %d: %v", len(problems), r.Kept, err)
		}
		return
	}
	dialogues, err := dataset.ReadDialogues(bytes.NewReader(data), "out")
	if err != nil || int64(len(dialogues)) != r.Kept {
		t.Fatalf("%d dialogues are read back, want %d: %v", len(dialogues), r.Kept, err)
	}
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []chat.Config{{}, {Template: tmpl}} {
		f, err := chat.NewPlain(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range dialogues {
			d, _ = f.Fit(d)
			tr, err := f.Render(d)
			if err != nil {
				t.Fatalf("dialogue %d: %v", i, err)
			}
			text := f.Tokenizer().Decode(tr.Tokens())
			if len(d.Tools) > 0 && !strings.Contains(text, "<tools>") || d.Tools != nil && len(d.Tools) == 0 && strings.Contains(text, "<tools>") {
				t.Fatalf("dialogue %d shows the wrong tools:\n%s", i, text)
			}
		}
	}
}

// TestParquetEqualsJSON: the form of a file changes nothing.
func TestParquetEqualsJSON(t *testing.T) {
	for _, name := range []string{"gsm8k", "dapo", "messages", "messages_plain", "apigen_mt", "math500"} {
		opts := importer.Options{Source: "own", License: "mit"}
		a, _, errA := run(t, opts, fixture(name+".jsonl"))
		b, _, errB := run(t, opts, fixture(name+".parquet"))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		x, _ := os.ReadFile(a)
		y, _ := os.ReadFile(b)
		if !bytes.Equal(x, y) {
			t.Errorf("%s: the outputs differ:\n%.600s\n%.600s", name, x, y)
		}
	}
}

// TestWriteWhole: a file has its name only when it is whole, and never replaces another.
func TestWriteWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	missing := func() error {
		_, err := os.Stat(path)
		return err
	}
	fill := func(w *bufio.Writer) error {
		if !errors.Is(missing(), os.ErrNotExist) {
			t.Error("half a file has its name")
		}
		_, err := w.WriteString("{}\n")
		return err
	}
	broken := errors.New("broken")
	if err := importer.WriteWhole(path, nil, func(w *bufio.Writer) error { return errors.Join(fill(w), broken) }); !errors.Is(err, broken) || !errors.Is(missing(), os.ErrNotExist) {
		t.Errorf("%v, %v", err, missing())
	}
	if err := os.WriteFile(path+".part", []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := importer.WriteWhole(path, nil, fill); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "{}\n" {
		t.Errorf("%q, %v", data, err)
	}
	if err := importer.WriteWhole(path, nil, fill); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("%v", err)
	}
}

// TestNoRows: a file of columns without a row, as pyarrow writes it, has no rows.
func TestNoRows(t *testing.T) {
	path := fixture("no_rows.parquet")
	if _, _, err := run(t, importer.Options{}, path); err == nil || err.Error() != path+": has no rows" {
		t.Errorf("%v", err)
	}
}

// hostile has a row for each way in which rows are malformed or of no use.
const hostile = `{"problem":"What is 1+1?","answer":2}
{"problem":"What is 1+2?","answer":[3]}
{"problem":"What is 1+3?","answer":[4,5]}
{"problem":"What is 1+4?","answer":null}
{"problem":"What is 1+5?"}
{"problem":"What is 1+6?","answer":{"v":7}}
{"problem":"what  is $1+1$ ?","answer":2}
{"problem":7,"answer":8}
{"problem":"","answer":8}
{"problem":"What is 1+8?","answer":9
{"problem":"a","problem":"b","answer":9}
[1,2]
text
` + "{\"problem\":\"\xff\xfe?\",\"answer\":1}\n" + `{"problem":"Does it converge?","answer":"the limit does not exist"}
{"problem":"Find both. (a) What is 2+2? (b) What is 3+3?","answer":"(a) 4, (b) 6"}
{"problem":"Half of 3?","answer":"\\frac{3}{2}"}
{"problem":"Huge?","answer":"12345678901234567890123"}
{"problem":"What is 30+3?","answer":33.0}
`

// TestReasons names a reason for each row of a hostile file, and refuses above the bound.
func TestReasons(t *testing.T) {
	path := write(t, hostile)
	opts := importer.Options{Rules: dataset.Rules{Answers: dataset.Integers, MaxDigits: 15}}
	out, r, err := run(t, opts, path)
	if !errors.Is(err, importer.ErrTooManyBad) {
		t.Fatalf("error is %v, want too many bad rows", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there is an output")
	}
	if r.NumBad() != 7 || r.Complete {
		t.Errorf("%d bad rows are reported, want all 7: %v", r.NumBad(), r.Bad)
	}
	opts.MaxBad = 7
	if _, r, err = run(t, opts, path); err != nil {
		t.Fatal(err)
	}
	want := map[layout.Reason]int64{
		layout.AnswerList: 1, layout.NoAnswer: 2, layout.Duplicate: 1, layout.NoPrompt: 1, layout.NotInteger: 2,
		layout.MultiPart: 1, layout.HugeAnswer: 1,
	}
	wantBad := map[layout.Reason]int64{layout.WrongType: 2, layout.NotJSON: 2, layout.DuplicateField: 1, layout.NotObject: 1, layout.NotUTF8: 1}
	if fmt.Sprint(r.Dropped) != fmt.Sprint(want) || fmt.Sprint(r.Bad) != fmt.Sprint(wantBad) || r.Kept != 3 {
		t.Errorf("%d kept, dropped %v, bad %v; want 3, %v, %v\n%v", r.Kept, r.Dropped, r.Bad, want, wantBad, r.Examples)
	}
}

// TestResume stops an import and goes on with it: the output is that of one without a stop.
func TestResume(t *testing.T) {
	var b strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&b, `{"question":"What is %d + %d?","answer":"%d"}`+"\n", i%5000, i%5000, 2*(i%5000))
	}
	path := write(t, b.String())
	whole, want, err := run(t, importer.Options{}, path, fixture("gsm8k.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	opts := importer.Options{Env: "math"}
	r, err := importer.Run(stopped, []string{path, fixture("gsm8k.parquet")}, out, opts)
	if !errors.Is(err, context.Canceled) || r.Read == 0 || r.Read >= 6000 {
		t.Fatalf("%d rows were read until the stop, with error %v", r.Read, err)
	}
	if r, err = importer.Run(t.Context(), []string{path, fixture("gsm8k.parquet")}, out, opts); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(whole)
	c, _ := os.ReadFile(out)
	if !bytes.Equal(a, c) || r.Read != want.Read || r.Kept != 5024 || r.Dropped[layout.Duplicate] != 1000 {
		t.Errorf("after the stop: %d read, %d kept, %v dropped, %d bytes; without: %d, %d, %d bytes", r.Read, r.Kept, r.Dropped, len(c), want.Read, want.Kept, len(a))
	}
	left, _ := filepath.Glob(out + ".part*")
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTwoImportsOfOneOutput: the second one would cut what the first one writes.
func TestTwoImportsOfOneOutput(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.jsonl")
	begun, goOn := make(chan struct{}), make(chan struct{})
	opts := importer.Options{Env: "math", MaxPromptTokens: 1 << 20, Tokens: func(*layout.Item) (int, error) { return 1, nil }}
	held, rows := opts, 0
	held.Tokens = func(*layout.Item) (int, error) {
		if rows++; rows == 2 {
			close(begun)
			<-goOn
		}
		return 1, nil
	}
	files := []string{fixture("gsm8k.jsonl")}
	first := make(chan error, 1)
	go func() {
		_, err := importer.Run(t.Context(), files, out, held)
		first <- err
	}()
	<-begun
	if _, err := importer.Run(t.Context(), files, out, opts); err == nil || !strings.Contains(err.Error(), out+" is being written") {
		t.Errorf("the second import: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Errorf("the first import: %v", err)
	}
	if data, err := os.ReadFile(out); err != nil || bytes.Count(data, []byte("\n")) != rowsOfFixture {
		t.Errorf("%d rows (%v)", bytes.Count(data, []byte("\n")), err)
	}
}

// TestTwoWritersOfOneFile: the same of what is written without a place to go on from.
func TestTwoWritersOfOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	put := func(text string) func(*bufio.Writer) error {
		return func(w *bufio.Writer) error {
			_, err := w.WriteString(text)
			return err
		}
	}
	err := importer.WriteWhole(path, nil, func(w *bufio.Writer) error {
		if err := importer.WriteWhole(path, nil, put("second\n")); err == nil || !strings.Contains(err.Error(), path+" is being written") {
			t.Errorf("the second writer: %v", err)
		}
		return put("first\n")(w)
	})
	if data, readErr := os.ReadFile(path); err != nil || string(data) != "first\n" {
		t.Errorf("%q (%v, %v)", data, err, readErr)
	}
}

// TestResumeWithoutRows: where the rows are gone, the error names the file without which the import begins anew.
func TestResumeWithoutRows(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"question":"What is %d + %d?","answer":"%d"}`+"\n", i, i, 2*i)
	}
	path, out := write(t, b.String()), filepath.Join(t.TempDir(), "out.jsonl")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	opts := importer.Options{Env: "math"}
	if _, err := importer.Run(stopped, []string{path}, out, opts); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Remove(out + ".part"); err != nil {
		t.Fatal(err)
	}
	_, err := importer.Run(t.Context(), []string{path}, out, opts)
	if err == nil {
		t.Fatal("rows that are gone are no error")
	}
	_, advice, _ := strings.Cut(err.Error(), "remove ")
	name, _, _ := strings.Cut(advice, " to begin anew")
	if name == "it" {
		name, _, _ = strings.Cut(err.Error(), " has ")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if r, err := importer.Run(t.Context(), []string{path}, out, opts); err != nil || r.Kept != 3000 {
		t.Errorf("after %s was removed: %d rows, %v", name, r.Kept, err)
	}
}

// TestOrigins: a row's own licence counts before the command's, and that before the card's.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("---\nlanguage: en\nlicense: cc-by-4.0\n---\n# A set\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "data.jsonl")
	if err := os.WriteFile(path, []byte(`{"question":"a?","answer":"1","license":"mit"}`+"\n"+`{"question":"b?","answer":"1"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, r, err := run(t, importer.Options{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sources) != 2 || r.Sources[0].License != "mit" || r.Sources[1].License != "cc-by-4.0" {
		t.Errorf("sources are %+v", r.Sources)
	}
	data, _ := os.ReadFile(out)
	problems, err := dataset.ReadProblems(bytes.NewReader(data), "out")
	if err != nil {
		t.Fatal(err)
	}
	if p := (rl.Problem{}); problems[1].License != "cc-by-4.0" || problems[1].Source != "data.jsonl" || problems[1] == p {
		t.Errorf("the problem is %+v", problems[1])
	}
}

// TestManySources: where each row names a source of its own, the report has the largest, and
// the rows of the others; an import that was stopped has the same.
func TestManySources(t *testing.T) {
	const num = 25_000
	var b strings.Builder
	for i := range num {
		source := fmt.Sprintf("https://example.org/%d", i)
		if i%5 == 4 {
			source = fmt.Sprint("often ", i%25)
		}
		fmt.Fprintf(&b, `{"problem":"What is %d + 0?","answer":"%d","source":"%s"}`+"\n", i, i, source)
	}
	path := write(t, b.String())
	_, r, err := run(t, importer.Options{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sources) != 100 || r.Sources[0] != (importer.SourceCount{Source: "often 4", License: "unknown", Rows: num / 25}) || r.Sources[5].Rows != 1 || r.OtherRows != num*4/5-95 {
		t.Errorf("%d sources and %d other rows, the first %+v", len(r.Sources), r.OtherRows, r.Sources[:6])
	}
	var text strings.Builder
	if err := r.Markdown(&text); err != nil || !strings.Contains(text.String(), "19905 rows are of other sources.") || text.Len() > 20_000 {
		t.Errorf("%v: %d bytes:\n%.5000s", err, text.Len(), &text)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	out := filepath.Join(t.TempDir(), "out.jsonl")
	for _, ctx := range []context.Context{stopped, t.Context()} {
		again, err := importer.Run(ctx, []string{path}, out, importer.Options{Env: "math"})
		if err == nil && fmt.Sprint(again.Sources, again.OtherRows) != fmt.Sprint(r.Sources, r.OtherRows) || err != nil && ctx != stopped {
			t.Errorf("after a stop: %d sources and %d other rows, the first %+v: %v", len(again.Sources), again.OtherRows, again.Sources[:6], err)
		}
	}
}

// TestSourcesAreLookedUp: rows with a source each cost about what rows of one source do.
func TestSourcesAreLookedUp(t *testing.T) {
	const num = 60_000
	cost := func(source func(i int) string) time.Duration {
		var b strings.Builder
		for i := range num {
			fmt.Fprintf(&b, `{"problem":"What is %d + 0?","answer":"%d","source":"%s"}`+"\n", i, i, source(i))
		}
		path := write(t, b.String())
		start := time.Now()
		if _, _, err := run(t, importer.Options{}, path); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	one := cost(func(int) string { return "https://example.org/questions/1" })
	if each := cost(func(i int) string { return fmt.Sprintf("https://example.org/questions/%d", i) }); each > 8*one {
		t.Errorf("rows with a source each take %v, and those of one source %v", each, one)
	}
}

// TestLongRow passes a row of 40 MB without keeping it.
func TestLongRow(t *testing.T) {
	path := write(t, `{"question":"a?","answer":"1"}`+"\n"+`{"question":"`+strings.Repeat("x", 40<<20)+`","answer":"1"}`+"\n"+`{"question":"b?","answer":"2"}`+"\n")
	_, r, err := run(t, importer.Options{MaxBad: 1}, path)
	if err != nil || r.Kept != 2 || r.Bad[layout.TooLong] != 1 {
		t.Errorf("%d kept, bad %v, %v", r.Kept, r.Bad, err)
	}
}

// TestUnknownLayout names the fields and the way out, and a field map takes it.
func TestUnknownLayout(t *testing.T) {
	path := write(t, `{"q":{"text":"What is 2+2?"},"meta":{"gold":[4]}}`+"\n")
	_, _, err := run(t, importer.Options{}, path)
	if err == nil || !strings.Contains(err.Error(), "q, meta") || !strings.Contains(err.Error(), "--map") {
		t.Errorf("error is %v", err)
	}
	fields, err := layout.ParseMap("prompt=q.text,answer=meta.gold")
	if err != nil {
		t.Fatal(err)
	}
	_, r, err := run(t, importer.Options{Fields: layout.Options{Map: fields}}, path)
	if err != nil || r.Kept != 1 {
		t.Errorf("%d kept, %v, %v", r.Kept, r.Bad, err)
	}
}
