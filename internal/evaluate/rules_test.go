package evaluate_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/evaluate"
	"temper/internal/openai/chatclient"
)

// reportOf evaluates one problem by one server that always says the same.
func reportOf(t *testing.T, mode evaluate.Mode, key, response string) evaluate.Sample {
	t.Helper()
	line, err := json.Marshal(map[string]string{"id": "p", "env": "math", "prompt": "do it", "answer": key})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.jsonl")
	if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := evaluate.ReadSet(evaluate.Set{Name: "s", Path: file, Rollouts: 1, MaxTurns: 1, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": %s, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n", response)
	}))
	defer server.Close()
	c := evaluate.Config{
		Model: chatclient.Client{URL: server.URL, Model: "m", HTTP: http.DefaultClient}, Sets: []evaluate.Set{set},
		Parallel: 1, Folder: t.TempDir(), Label: "m",
	}
	samples, err := evaluate.Run(t.Context(), c)
	if err != nil || len(samples) != 1 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}
	again, changed, err := evaluate.Reverify(c)
	if err != nil || changed != 0 || again[0] != samples[0] {
		t.Errorf("judged again: %+v, %d changed, %v; was %+v", again, changed, err, samples[0])
	}
	return samples[0]
}

func content(t *testing.T, text string) string {
	t.Helper()
	data, err := json.Marshal(map[string]string{"content": text})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRules asks each instruction for a text that follows it and one that does not.
func TestRules(t *testing.T) {
	for _, c := range []struct{ id, kwargs, follows, breaks string }{
		{"keywords:existence", `{"keywords": ["Rain", "sun"]}`, "sunny and rainy", "sunny"},
		{"keywords:frequency", `{"keyword": "dog", "frequency": 2, "relation": "at least"}`, "Dog dog", "dog"},
		{"keywords:frequency", `{"keyword": "dog", "frequency": 2, "relation": "less than"}`, "dog", "dog dog"},
		{"keywords:forbidden_words", `{"forbidden_words": ["cat"]}`, "category", "a Cat."},
		{"keywords:letter_frequency", `{"letter": "q", "let_frequency": 1, "let_relation": "less than"}`, "no such letter", "Quite"},
		{"language:response_language", `{"language": "ru"}`, "\u043f\u0440\u0438\u0432\u0435\u0442", "hello there"},
		{"language:response_language", `{"language": "de"}`, "das ist nicht die Antwort", "this is not the answer to it"},
		{"length_constraints:number_sentences", `{"num_sentences": 2, "relation": "at least"}`, "One. Two!", "Dr. Who is one."},
		{"length_constraints:number_words", `{"num_words": 3, "relation": "less than"}`, "two words", "now three words"},
		{"length_constraints:number_paragraphs", `{"num_paragraphs": 2}`, "a\n***\nb", "a\n\nb"},
		{"length_constraints:nth_paragraph_first_word", `{"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"}`, "a b\n\n\"Then, so", "then\n\nso"},
		{"detectable_content:number_placeholders", `{"num_placeholders": 2}`, "[a] and [b]", "[a]"},
		{"detectable_content:postscript", `{"postscript_marker": "P.S."}`, "end\nP. S. more", "end PS more"},
		{"detectable_format:number_bullet_lists", `{"num_bullets": 2}`, "* a\n- b", "* a\n* b\n* c"},
		{"detectable_format:constrained_response", `{}`, "My answer is maybe.", "maybe"},
		{"detectable_format:number_highlighted_sections", `{"num_highlights": 2}`, "*a* and *b*", "*a* and b"},
		{"detectable_format:multiple_sections", `{"section_spliter": "Section", "num_sections": 2}`, "Section 1\na\nSection 2\nb", "Section 1 a"},
		{"detectable_format:json_format", `{}`, "```json\n{\"a\": [1]}\n```", "{a: 1}"},
		{"detectable_format:title", `{}`, "<<a title>> text", "<< >> text"},
		{"combination:two_responses", `{}`, "one\n******\ntwo", "one\n******\none"},
		{"combination:repeat_prompt", `{"prompt_to_repeat": "Say it."}`, "say it. it", "it"},
		{"startend:end_checker", `{"end_phrase": "The end"}`, "so\nthe END", "the end."},
		{"startend:quotation", `{}`, `"all of it"`, `"all" of it`},
		{"change_case:capital_word_frequency", `{"capital_frequency": 2, "capital_relation": "at least"}`, "A BIG dog", "a BIG dog"},
		{"change_case:english_capital", `{}`, "THE END OF IT", "The end"},
		{"change_case:english_lowercase", `{}`, "the end of it", "The end"},
		{"punctuation:no_comma", `{}`, "a and b", "a, b"},
	} {
		key := fmt.Sprintf(`{"instruction_id_list": [%q], "kwargs": [%s]}`, c.id, c.kwargs)
		if got := reportOf(t, evaluate.Rules, key, content(t, c.follows)); !got.Correct {
			t.Errorf("%s %s: %q: %s", c.id, c.kwargs, c.follows, got.Reason)
		}
		if got := reportOf(t, evaluate.Rules, key, content(t, c.breaks)); got.Correct || got.Reason != "not followed: "+c.id {
			t.Errorf("%s %s: %q counts as right (%s)", c.id, c.kwargs, c.breaks, got.Reason)
		}
	}
	// Copies of IFEval in tables have every name for every instruction.
	padded := `{"instruction_id_list": ["startend:quotation", "keywords:letter_frequency"], "kwargs": [{"num_words": null, "keywords": null, "other": null}, ` +
		`{"letter": "#", "let_frequency": 0, "let_relation": "at least", "num_words": null, "section_spliter": null}]}`
	if got := reportOf(t, evaluate.Rules, padded, content(t, `"a"`)); !got.Correct {
		t.Errorf("arguments that are null: %+v", got)
	}
	if got := reportOf(t, evaluate.Rules, `{"instruction_id_list": ["startend:quotation"], "kwargs": [null]}`, content(t, `"a"`)); !got.Correct {
		t.Errorf("no arguments: %+v", got)
	}
	both := `{"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]}`
	if got := reportOf(t, evaluate.Rules, both, content(t, `"a, b"`)); got.Correct || got.Extracted != "1 of 2" {
		t.Errorf("one of two instructions: %+v", got)
	}
}

const weather = `"functions": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]`

func TestCalls(t *testing.T) {
	tagged := func(calls ...string) string {
		return content(t, "<tool_call>"+strings.Join(calls, "</tool_call><tool_call>")+"</tool_call>")
	}
	one := `{` + weather + `, "calls": [{"weather": {"city": ["New York, NY", "NYC"], "days": [3, ""], "units": [["C", "F"]]}}]}`
	two := `{` + weather + `, "calls": [{"weather": {"city": ["Rome"]}}, {"weather": {"city": ["Rome", "Oslo"]}}]}`
	object := `{` + weather + `, "calls": [{"weather": {"at": [{"lat": [1.5], "lon": [2, ""]}]}}]}`
	for _, c := range []struct {
		key, delta string
		want       bool
	}{
		{one, `{"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"new york ny\", \"days\": 3, \"units\": [\"c\", \"F\"]}"}}]}`, true},
		{one, tagged(`{"name": "weather", "arguments": {"city": "NYC", "units": ["C", "F"]}}`), true},
		{one, tagged(`{"name": "weather", "arguments": {"city": "NYC", "units": ["F", "C"]}}`), false},
		{one, tagged(`{"name": "weather", "arguments": {"city": "NYC", "days": 4, "units": ["C", "F"]}}`), false},
		{one, tagged(`{"name": "weather", "arguments": {"city": "NYC", "units": ["C", "F"], "more": 1}}`), false},
		{one, tagged(`{"name": "weather", "arguments": {"units": ["C", "F"]}}`), false},
		{one, tagged(`{"name": "Weather", "arguments": {"city": "NYC", "units": ["C", "F"]}}`), false},
		{one, tagged(`{"name": "weather"`), false},
		{one, content(t, "I cannot."), false},
		{two, tagged(`{"name": "weather", "arguments": {"city": "Rome"}}`, `{"name": "weather", "arguments": {"city": "Oslo"}}`), true},
		{two, tagged(`{"name": "weather", "arguments": {"city": "Oslo"}}`, `{"name": "weather", "arguments": {"city": "rome"}}`), true},
		{two, tagged(`{"name": "weather", "arguments": {"city": "Oslo"}}`, `{"name": "weather", "arguments": {"city": "Oslo"}}`), false},
		{two, tagged(`{"name": "weather", "arguments": {"city": "Rome"}}`), false},
		{object, tagged(`{"name": "weather", "arguments": {"at": {"lat": 1.50}}}`), true},
		{object, tagged(`{"name": "weather", "arguments": {"at": {"lat": 1.5, "lon": 3}}}`), false},
		{`{` + weather + `, "calls": []}`, content(t, "No function fits."), true},
		{`{` + weather + `, "calls": []}`, tagged(`{"name": "weather", "arguments": {}}`), false},
	} {
		if got := reportOf(t, evaluate.Calls, c.key, c.delta); got.Correct != c.want || got.Correct == (got.Reason != "") {
			t.Errorf("%s by %s: %+v, want %v", c.delta, c.key, got, c.want)
		}
	}
}

// TestKeysOfRulesAndCalls are refused before anything is sampled.
func TestKeysOfRulesAndCalls(t *testing.T) {
	for key, want := range map[string]string{
		"5":  "is no object of instruction_id_list",
		"{}": "0 instructions and 0 kwargs",
		`{"instruction_id_list": ["keywords:none"], "kwargs": [{}]}`:                                                             `unknown instruction "keywords:none"`,
		`{"instruction_id_list": ["keywords:frequency"], "kwargs": [{"keyword": "a", "frequency": 1, "relation": "more than"}]}`: `relation "more than", want less than or at least`,
		`{"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "xx"}]}`:                                `language "xx" cannot be told`,
		`{"instruction_id_list": ["keywords:existence"], "kwargs": [{"keyword_list": ["zebra"]}]}`:                               `unknown field "keyword_list"`,
		`{"instruction_id_list": ["length_constraints:number_words"], "kwargs": [{"words": 300, "relation": "at least"}]}`:       `unknown field "words"`,
		`{"instruction_id_list": ["keywords:existence"], "kwargs": [{}]}`:                                                        "keywords:existence: the argument keywords is missing or empty",
		`{"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": []}]}`:                                          "keywords:existence: the argument keywords is missing or empty",
		`{"instruction_id_list": ["startend:end_checker"], "kwargs": [{"end_phrase": ""}]}`:                                      "startend:end_checker: the argument end_phrase is missing or empty",
		`{"instruction_id_list": ["length_constraints:number_words"], "kwargs": [null]}`:                                         "the argument num_words is missing or empty",
		`{"instruction_id_list": ["length_constraints:number_words"], "kwargs": [{"num_words": null, "num_sentences": 3}]}`:      "the argument num_words is missing or empty",
		`{"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}`:                                                        "1 instructions and 0 kwargs",
		`{"functions": [], "calls": []}`:                   "no list of functions",
		`{` + weather + `, "calls": [{"other": {}}]}`:      `"other", which is none of its functions`,
		`{` + weather + `, "calls": [{"a": {}, "b": {}}]}`: "call 1 of the key names 2 functions",
	} {
		mode := evaluate.Rules
		if strings.Contains(key, "functions") {
			mode = evaluate.Calls
		}
		line, err := json.Marshal(map[string]string{"id": "p", "env": "math", "prompt": "do it", "answer": key})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "p.jsonl")
		if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := evaluate.ReadSet(evaluate.Set{Name: "s", Path: file, Mode: mode}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "problem p") {
			t.Errorf("%s: %v, want %q", key, err, want)
		}
	}
}
