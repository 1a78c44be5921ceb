package evaluate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/evaluate"
	"temper/internal/openai/chatclient"
	"temper/sandbox/sandboxtest"
)

// server is a model that answers each question right for some seeds. It counts what it is
// asked, and can die.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]int // by prompt and seed
	// dies after so many answers; 0 = never. Then every connection breaks off.
	dies    int
	answers int
	garbage bool
	endless bool // one line without an end
	// drops answers break off after this time, where they say something or not.
	drops  int
	slow   time.Duration
	silent bool
	// card is what the list says beside the name, and next what it says after so many
	// questions.
	card, next string
	after      int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{asked: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		_, _ = fmt.Fprintf(w, `{"data": [{"id": "fake"%s}]}`, s.told())
		return
	}
	var q struct {
		Messages []struct{ Content string } `json:"messages"`
		Seed     int64                      `json:"seed"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt := q.Messages[len(q.Messages)-1].Content
	s.mu.Lock()
	s.asked[fmt.Sprintf("%s/%d", prompt, q.Seed)]++
	s.answers++
	dead, garbage, endless := s.dies > 0 && s.answers > s.dies, s.garbage, s.endless
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	if s.drop(w) {
		panic(http.ErrAbortHandler)
	}
	if garbage {
		_, _ = fmt.Fprint(w, "data: {\"choices\": [{\n\n")
		return
	}
	for endless {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
	said := "7" // wrong
	if q.Seed%3 > 0 {
		said = "4"
	}
	_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": \"so \\\\boxed{%s}\"}}]}\n\n", said)
	if dead {
		panic(http.ErrAbortHandler) // in the middle of an answer
	}
	_, _ = fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n")
	_, _ = fmt.Fprint(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 5}}\n\ndata: [DONE]\n\n")
}

// told is what the list says beside the name.
func (s *server) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != "" && s.answers >= s.after {
		return s.next
	}
	return s.card
}

// drop takes its time with the beginning of an answer that is to break off.
func (s *server) drop(w http.ResponseWriter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops == 0 {
		return false
	}
	s.drops--
	if !s.silent {
		_, _ = fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"so\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	time.Sleep(s.slow)
	return true
}

func config(t *testing.T, url string) evaluate.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "problems.jsonl")
	var lines []string
	for i := range 6 {
		lines = append(lines, fmt.Sprintf(`{"id": "p%d", "env": "math", "prompt": "question %d?", "answer": "4"}`, i, i))
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := evaluate.ParseSet("own="+file, evaluate.Set{Rollouts: 5, Temperature: 0.6, MaxTurns: 3, Mode: "released"})
	if err == nil {
		set, err = evaluate.ReadSet(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	return evaluate.Config{
		Model: chatclient.Client{URL: url, Model: "fake", HTTP: http.DefaultClient}, Sets: []evaluate.Set{set}, Seed: 3, Parallel: 3, Folder: t.TempDir(), Label: "fake",
	}
}

// TestServerThatDies in the middle of an answer loses no sample that has ended, and makes
// none twice: what is asked again is what never had a whole answer.
func TestServerThatDies(t *testing.T) {
	s := newServer(t)
	s.dies = 11
	c := config(t, s.URL)
	samples, err := evaluate.Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "11 of 30 samples are in") || len(samples) != 11 {
		t.Fatalf("%d samples (%v), want the 11 that ended", len(samples), err)
	}
	torn, err := os.OpenFile(filepath.Join(c.Folder, "samples.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"set":"own","problem":"p5","sam`); err != nil || torn.Close() != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.dies, s.asked = 0, map[string]int{}
	s.mu.Unlock()
	again, err := evaluate.Run(t.Context(), c)
	if err != nil || len(again) != 30 {
		t.Fatalf("%d samples (%v), want 30", len(again), err)
	}
	if len(s.asked) != 19 {
		t.Errorf("%d questions were asked again, want the 19 that had no answer", len(s.asked))
	}
	calm := config(t, newServer(t).URL)
	calm.Sets = c.Sets
	want, err := evaluate.Run(t.Context(), calm)
	if d := cmp.Diff(want, again); d != "" || err != nil {
		t.Errorf("not the samples of a calm evaluation (%v):\n%s", err, d)
	}
	if _, err := evaluate.Run(t.Context(), c); err != nil || len(s.asked) != 19 {
		t.Errorf("an evaluation that is done asked on (%v)", err)
	}
}

// TestGarbage ends the evaluation with what came, when patience is over.
func TestGarbage(t *testing.T) {
	s := newServer(t)
	s.garbage = true
	c := config(t, s.URL)
	c.Patience = 300 * time.Millisecond
	if _, err := evaluate.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "a part of the stream cannot be read") {
		t.Errorf("ended with %v", err)
	}
	s = newServer(t)
	s.endless = true
	c.Model.URL = s.URL
	if _, err := evaluate.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "a line of the stream is longer than 4 MiB") {
		t.Errorf("ended with %v", err)
	}
}

// TestLateReset: patience begins when a server fails, not when the sample begins, and an
// answer that was under way does not use it up. Where nothing is said at all, it ends.
func TestLateReset(t *testing.T) {
	one := func(s *server) evaluate.Config {
		c := config(t, s.URL)
		c.Sets[0].Rollouts, c.Sets[0].Problems, c.Patience = 1, c.Sets[0].Problems[:1], time.Second
		return c
	}
	for name, s := range map[string]struct {
		drops  int
		silent bool
		slow   time.Duration
		want   int // samples
	}{
		"one late reset":                  {1, true, 1500 * time.Millisecond, 1},
		"answers that break off":          {2, false, 1500 * time.Millisecond, 1},
		"a server that says nothing":      {10, true, 600 * time.Millisecond, 0},
		"a server that always breaks off": {1000, false, 0, 0},
	} {
		fake := newServer(t)
		fake.drops, fake.silent, fake.slow = s.drops, s.silent, s.slow
		samples, err := evaluate.Run(t.Context(), one(fake))
		if len(samples) != s.want || (err == nil) != (s.want == 1) {
			t.Errorf("%s: %d samples, %v", name, len(samples), err)
		}
		fake.mu.Lock()
		attempts := s.drops - fake.drops
		fake.mu.Unlock()
		if s.want == 0 && (attempts < 2 || attempts > 5) {
			t.Errorf("%s: %d attempts", name, attempts)
		}
	}
}

// TestBudgetHasWhatLeavesTheHistory: the tokens of turns whose reasoning is not sent back
// count for the budget of a sample all the same.
func TestBudgetHasWhatLeavesTheHistory(t *testing.T) {
	var mu sync.Mutex
	sampled := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages  []struct{ Role string } `json:"messages"`
			MaxTokens int                     `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		n, finish, call := min(300, q.MaxTokens), "length", ""
		if n == 300 {
			finish, call = "tool_calls", `, "tool_calls": [{"index": 0, "id": "c", "function": {"name": "python", "arguments": "{\"code\": \"1\"}"}}]`
		}
		mu.Lock()
		sampled += n
		mu.Unlock()
		_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"hm\"%s}, \"finish_reason\": %q}]}\n\n", call, finish)
		_, _ = fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d}}\n\ndata: [DONE]\n\n", 20+10*len(q.Messages), n)
	}))
	defer s.Close()
	c := config(t, s.URL)
	c.Sets[0].Rollouts, c.Sets[0].Problems, c.Sets[0].MaxTokens, c.Sets[0].MaxTurns = 1, c.Sets[0].Problems[:1], 1000, 10
	c.NewTools = func(name, _ string) (*chatclient.Tools, error) {
		return chatclient.NewTools(chatclient.ToolConfig{Names: []string{"python"}, Executor: &sandboxtest.Fake{}, Name: name})
	}
	samples, err := evaluate.Run(t.Context(), c)
	if err != nil || len(samples) != 1 || samples[0].Tokens != 1000 || samples[0].Finish != "length" || sampled != 1000 {
		t.Errorf("%+v, %v: %d tokens, want the 1000 of the budget", samples, err, sampled)
	}
}

// TestCancelled is no failure of a sample.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := evaluate.Run(ctx, config(t, newServer(t).URL)); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestReportCountsTheJournal, and a reverification by another mode changes verdicts only.
func TestReportCountsTheJournal(t *testing.T) {
	c := config(t, newServer(t).URL)
	samples, err := evaluate.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	report, err := evaluate.Summarize(c, samples)
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for _, s := range samples {
		if s.Correct {
			right++
		}
	}
	got := report.Sets[0]
	if got.Average.Value != float64(right)/30 && fmt.Sprintf("%.9f", got.Average.Value) != fmt.Sprintf("%.9f", float64(right)/30) {
		t.Errorf("average %v, want %d of 30", got.Average, right)
	}
	if got.NumSamples != 30 || got.MeanTokens != 5 || got.MeanTurns != 1 || len(got.At) != 4 || got.At[3].K != 5 || right == 0 || right == 30 {
		t.Errorf("report %+v", got)
	}
	if text := report.Markdown(); !strings.Contains(text, "| own | 6 | 5 | ") {
		t.Errorf("report:\n%s", text)
	}
	if err := report.Compare(c, samples, samples, "itself"); err != nil || report.Sets[0].Compared.Value != 0 || report.Sets[0].Compared.P != 1 {
		t.Errorf("compared with itself: %+v (%v)", report.Sets[0].Compared, err)
	}
	c.Sets[0].Mode = "paper" // wants an <answer> block
	judged, changed, err := evaluate.Reverify(c)
	if err != nil || changed != right || len(judged) != 30 {
		t.Errorf("%d of %d verdicts changed (%v), want %d", changed, len(judged), err, right)
	}
}

// TestOtherSettings are refused by the folder of an evaluation; more samples are not.
func TestOtherSettings(t *testing.T) {
	c := config(t, newServer(t).URL)
	if _, err := evaluate.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	more := c
	more.Sets = []evaluate.Set{c.Sets[0]}
	more.Sets[0].Rollouts = 6
	if samples, err := evaluate.Run(t.Context(), more); err != nil || len(samples) != 36 {
		t.Errorf("%d samples (%v), want 36", len(samples), err)
	}
	warm := c
	warm.Sets = []evaluate.Set{c.Sets[0]}
	warm.Sets[0].Temperature = 1
	if _, err := evaluate.Run(t.Context(), warm); err == nil || !strings.Contains(err.Error(), "made with other settings: set own") {
		t.Errorf("another temperature: %v", err)
	}
}

// TestNamesAreEscaped in the report, which goes to a terminal: a server names its model.
func TestNamesAreEscaped(t *testing.T) {
	c := config(t, newServer(t).URL)
	c.Label = "m\x1b]0;owned\a\n# Evaluation of n"
	samples, err := evaluate.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	report, err := evaluate.Summarize(c, samples)
	if err == nil {
		err = report.Compare(c, samples, samples, "a\u009b2J")
	}
	if err != nil {
		t.Fatal(err)
	}
	text := report.Markdown()
	if !strings.HasPrefix(text, `# Evaluation of m\x1b]0;owned\x07 # Evaluation of n`+"\n\n") || !strings.Contains(text, "\n## Against a\\u009b2J\n") {
		t.Errorf("report:\n%q", text)
	}
}

// TestTwoAtOnce: a second evaluation in the folder of one that is under way is refused, and
// leaves its samples and settings alone.
func TestTwoAtOnce(t *testing.T) {
	s := newServer(t)
	c := config(t, s.URL)
	var once sync.Once
	var second error
	c.Progress = func(done, _ int) {
		if done <= 3 {
			return
		}
		once.Do(func() {
			other := c
			other.Progress, other.Label = nil, "other"
			_, second = evaluate.Run(t.Context(), other)
		})
	}
	samples, err := evaluate.Run(t.Context(), c)
	if err != nil || len(samples) != 30 {
		t.Errorf("the first: %d samples, %v", len(samples), err)
	}
	if second == nil || !strings.Contains(second.Error(), "another evaluation is writing to it") {
		t.Errorf("the second: %v", second)
	}
	c.Progress = nil
	asked := len(s.asked)
	if samples, err = evaluate.Run(t.Context(), c); err != nil || len(samples) != 30 || len(s.asked) != asked {
		t.Errorf("the folder after both: %d samples, %v", len(samples), err)
	}
}

// TestOtherSource: the folder of one model is refused to another of the same name. One that
// does not say which model it is of is refused to all, with the line that mends it.
func TestOtherSource(t *testing.T) {
	c := config(t, newServer(t).URL)
	card := chatclient.Card{"root": "/models/a", "max_model_len": "4096"}
	c.Source = evaluate.Source{Server: "http://a:8000", Tools: []string{"python"}, Card: card}
	if _, err := evaluate.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, other := range []struct {
		source evaluate.Source
		want   string
	}{
		{evaluate.Source{Server: "http://b:8000", Tools: []string{"python"}}, `server "http://a:8000", now "http://b:8000"; name another folder with --out, or, if the same model has moved`},
		{evaluate.Source{Server: "http://a:8000", Tools: []string{"search"}}, `tools ["python"], now ["search"]`},
		{evaluate.Source{Weights: "0123456789abcdef", Tools: []string{"python"}}, `server "http://a:8000", now ""`},
		{
			evaluate.Source{Server: "http://a:8000", Tools: []string{"python"}, Card: chatclient.Card{"root": "/models/b", "max_model_len": "4096"}},
			`the server said root "/models/a", now "/models/b"; name another folder with --out, or, if it is the same model, take "root" out of the card in ` + filepath.Join(c.Folder, "settings.json"),
		},
		{evaluate.Source{Server: "http://a:8000", Tools: []string{"python"}, MaxContext: 9}, "a context of 0 tokens, now 9"},
	} {
		next := c
		next.Source = other.source
		if samples, err := evaluate.Run(t.Context(), next); err == nil || !strings.Contains(err.Error(), other.want) || len(samples) > 0 {
			t.Errorf("%+v: %d samples, %v, want %q", other.source, len(samples), err, other.want)
		}
	}
	later := c // the server tells more than before, and less
	later.Source.Card = chatclient.Card{"max_model_len": "4096", "weights": "0123"}
	if _, err := evaluate.Run(t.Context(), later); err != nil {
		t.Error(err)
	}
	later.Source.Card["weights"] = "4567"
	if _, err := evaluate.Run(t.Context(), later); err == nil || !strings.Contains(err.Error(), `weights "0123", now "4567"`) {
		t.Errorf("other weights than those that were added: %v", err)
	}
	name := filepath.Join(c.Folder, "settings.json")
	var settings map[string]any
	if data, err := os.ReadFile(name); err != nil || json.Unmarshal(data, &settings) != nil {
		t.Fatal(err)
	}
	delete(settings, "source") // as before
	write := func() {
		data, err := json.Marshal(settings)
		if err == nil {
			err = os.WriteFile(name, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	_, err := evaluate.Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "--reverify reports them as they are") {
		t.Fatalf("a folder of before: %v", err)
	}
	_, line, _ := strings.Cut(err.Error(), `write "source": `)
	line, _, _ = strings.Cut(line, ", into ")
	settings["source"] = json.RawMessage(line)
	write()
	if samples, err := evaluate.Run(t.Context(), c); err != nil || len(samples) != 30 {
		t.Errorf("with the line of the error: %d samples, %v", len(samples), err)
	}
	if _, _, err := evaluate.Reverify(c); err != nil {
		t.Error(err)
	}
}

// TestModelReplacedMeanwhile under the same name and address: what comes after an outage is not
// taken for an answer of the first model, and a change without one is reported at the end.
func TestModelReplacedMeanwhile(t *testing.T) {
	const a, b = `, "created": 1, "root": "/models/a"`, `, "created": 2, "root": "/models/b"`
	t.Run("in an outage", func(t *testing.T) {
		s := newServer(t)
		s.card, s.next, s.after, s.dies = a, b, 11, 10 // the answer that breaks off is the last one of a
		c := servedConfig(t, s)
		c.Parallel, c.Patience = 1, time.Hour
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // waiting does not bring the first model back
		defer stop()
		samples, err := evaluate.Run(ctx, c)
		want := `its samples are of a model of which the server said root "/models/a", now "/models/b"`
		if err == nil || !strings.Contains(err.Error(), want) || len(samples) != 10 || s.answers != 11 {
			t.Errorf("%d samples after %d questions, %v, want 10 after 11 and %q", len(samples), s.answers, err, want)
		}
	})
	t.Run("in an outage by the same one", func(t *testing.T) {
		s := newServer(t)
		s.card, s.next, s.after, s.drops = a, strings.Replace(a, "1", "2", 1), 1, 2
		c := servedConfig(t, s)
		c.Patience = time.Minute
		if samples, err := evaluate.Run(t.Context(), c); err != nil || len(samples) != 30 {
			t.Errorf("%d samples, %v", len(samples), err)
		}
	})
	t.Run("without an outage", func(t *testing.T) {
		s := newServer(t)
		s.card, s.next, s.after = a, b, 7
		c := servedConfig(t, s)
		if samples, err := evaluate.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the samples of this command may be of either") || len(samples) != 30 {
			t.Errorf("%d samples, %v", len(samples), err)
		}
	})
	t.Run("told later", func(t *testing.T) {
		s := newServer(t)
		s.card, s.next, s.after = "", a, 7
		c := servedConfig(t, s)
		if _, err := evaluate.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Source.Card = chatclient.Card{"root": "/models/b"}
		if _, err := evaluate.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), `root "/models/a", now "/models/b"`) {
			t.Errorf("another one than the first that was told: %v", err)
		}
	})
}

// servedConfig is an evaluation of what the server says at its start.
func servedConfig(t *testing.T, s *server) evaluate.Config {
	t.Helper()
	c := config(t, s.URL)
	if err := c.Model.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Source = evaluate.Source{Server: c.Model.Address(), Card: c.Model.Card}
	return c
}

// TestModes that package verify does not have.
func TestModes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(file, []byte(`{"id": "a", "env": "math", "prompt": "?", "answer": "42"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := evaluate.ParseSet("gpqa-diamond="+file, evaluate.Set{})
	if err != nil || set.Rollouts != 16 || set.Temperature != 0.6 || set.MaxTurns != 30 || set.MaxTokens != 30720 {
		t.Errorf("preset %+v (%v)", set, err)
	}
	if _, err := evaluate.ReadSet(set); err == nil || !strings.Contains(err.Error(), `problem a: the key "42" is no letter`) {
		t.Errorf("a key that is no choice: %v", err)
	}
	if _, err := evaluate.ParseSet("aime24", evaluate.Set{}); err == nil {
		t.Error("a set without a file")
	}
}
