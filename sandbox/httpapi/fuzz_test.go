package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

// answersOf serves one stream whose caller sends body and ends, and returns the
// answers after the load that comes first.
func answersOf(t *testing.T, handler http.Handler, body []byte) []ServerFrame {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, PathStream, bytes.NewReader(body))
	r.ProtoMajor, r.Proto = 2, "HTTP/2.0"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	var frames []ServerFrame
	for i, line := range strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n") {
		var f ServerFrame
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		switch {
		case i == 0 && f.Load == nil:
			t.Fatal("the load does not come first")
		case f.Load != nil:
		case (f.Result == nil) == (f.Error == nil):
			t.Errorf("line %d is not one answer: %s", i, line)
		default:
			frames = append(frames, f)
		}
	}
	return frames
}

// FuzzStreamFrame checks that every line of a caller gets its one answer, and
// one that can be understood under its ID.
func FuzzStreamFrame(f *testing.F) {
	f.Add([]byte(`{"call":{"id":"a","code":"print(1)","limits":{"wall_ns":5}},"deadline_ms":1000}` + "\n" + `{"cancel":"a"}`))
	f.Add([]byte("{\"call\":{\"id\":\"a\"}}\n\n{\"call\":{\"id\":\"a\"}}\n{\"call\":{\"id\":\"a\",\"code\":\"x\"}}\n"))
	f.Add([]byte(`{"call":null}` + "\n" + `{"cancel":"\u0000"}` + "\r\n" + `[[[[`))
	f.Add([]byte("\xff\n{}\nnull\n{\"call\":{\"id\":\"\"}}\n{\"call\":{\"id\":\"x\",\"id\":\"y\"}}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		handler := NewHandler(&sandboxtest.Fake{}, Config{}) // no input finds the ids of another
		want := 0
		ids := map[string]int{}
		for line := range bytes.SplitSeq(body, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			var frame ClientFrame
			err := unmarshal(line, &frame)
			if err == nil && frame.Call == nil && frame.Cancel != "" {
				continue
			}
			want++
			if err == nil && frame.Call != nil {
				ids[frame.Call.ID]++
			}
		}
		frames := answersOf(t, handler, body)
		if len(frames) != want {
			t.Fatalf("%d answers to %d lines of %q", len(frames), want, body)
		}
		for _, frame := range frames {
			ids[frame.ID]--
			if frame.Result != nil && frame.Result.ID != frame.ID {
				t.Errorf("the answer to %q is that of %q", frame.ID, frame.Result.ID)
			}
		}
		for id, n := range ids {
			if n > 0 {
				t.Errorf("%d calls %q without an answer in %q", n, id, body)
			}
		}
	})
}

// FuzzBatchBody checks that a batch is refused as a whole or every item of it
// answered, together and in lines alike.
func FuzzBatchBody(f *testing.F) {
	f.Add([]byte(`{"calls":[{"id":"a","code":"1"},{"id":1},{"x":[]},null,"\ud800",{"id":"b","id":"c"}]}`))
	f.Add([]byte(`{"calls":[],"calls":[{}]}`))
	f.Add([]byte(`{"calls":null}`))
	f.Add([]byte(`{"calls":[[[[[]]]]]} x`))
	f.Fuzz(func(t *testing.T, body []byte) {
		handler := NewHandler(&sandboxtest.Fake{}, Config{}) // no input finds the ids of another
		post := func(accept string) (int, []byte) {
			r := httptest.NewRequest(http.MethodPost, PathBatch, bytes.NewReader(body))
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code, w.Body.Bytes()
		}
		code, text := post(typeJSON)
		linesCode, linesText := post(typeLines)
		if code != linesCode {
			t.Fatalf("%q: %d together, %d in lines", body, code, linesCode)
		}
		if code != http.StatusOK {
			var refused failureBody
			if json.Unmarshal(text, &refused) != nil || refused.Error.Message == "" || code < 400 || code > 499 {
				t.Errorf("%q: got %d %s, want a reason", body, code, text)
			}
			return
		}
		var in struct{ Calls []json.RawMessage }
		var out BatchAnswer
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		if err := json.Unmarshal(text, &out); err != nil || len(out.Answers) != len(in.Calls) {
			t.Fatalf("%q: got %s, %v, want %d answers", body, text, err, len(in.Calls))
		}
		seen := make([]bool, len(in.Calls))
		for line := range bytes.Lines(linesText) {
			var l BatchLine
			if err := json.Unmarshal(line, &l); err != nil || seen[l.Index] {
				t.Fatalf("%q: line %s: %v", body, line, err)
			}
			seen[l.Index] = true
			if (l.Result == nil) != (out.Answers[l.Index].Result == nil) {
				t.Errorf("%q: item %d differs: %s", body, l.Index, line)
			}
		}
		for i, ok := range seen {
			if !ok {
				t.Errorf("%q: no line for item %d", body, i)
			}
		}
	})
}

func TestEveryBadLineIsAnswered(t *testing.T) {
	fake := &sandboxtest.Fake{}
	handler := NewHandler(fake, Config{})
	nested := strings.Repeat("[", 20_000)
	for _, c := range []struct {
		name, line, id string
		code           Code
		want           string
	}{
		{"no JSON", "print(1)", "", CodeInvalid, "invalid character 'p'"},
		{"not an object", `[1]`, "", CodeInvalid, "want object, got"},
		{"null", `null`, "", CodeInvalid, "neither a call nor a cancel"},
		{"empty", `{}`, "", CodeInvalid, "neither a call nor a cancel"},
		{"two values", `{"call":{"id":"a"}}{"call":{"id":"b"}}`, "a", CodeInvalid, "after top-level value"},
		{"cut short", `{"call":{"id":"a","code":"x`, "a", CodeInvalid, "unexpected EOF"},
		{"unknown field", `{"call":{"id":"a","cod":1}}`, "a", CodeInvalid, `unknown field in "/call/cod"`},
		{"unknown frame", `{"kill":"a"}`, "", CodeInvalid, `unknown field in "/kill"`},
		{"other case", `{"call":{"id":"a","Code":"x"}}`, "a", CodeInvalid, `"/call/Code"`},
		{"wrong type", `{"call":{"id":"a","code":1}}`, "a", CodeInvalid, `want string, got number in "/call/code"`},
		{"wrong type of id", `{"call":{"id":{},"code":""}}`, "", CodeInvalid, `want string, got object in "/call/id"`},
		{"wrong type of limits", `{"call":{"id":"a","limits":[]}}`, "a", CodeInvalid, `want object, got array`},
		{"wrong type of a limit", `{"call":{"id":"a","limits":{"memory_bytes":"1"}}}`, "a", CodeInvalid, "want 64-bit integer, got string"},
		{"fraction", `{"call":{"id":"a","limits":{"memory_bytes":1.5}}}`, "a", CodeInvalid, "want 64-bit integer"},
		{"overflow", `{"call":{"id":"a","limits":{"wall_ns":99999999999999999999}}}`, "a", CodeInvalid, "want 64-bit integer"},
		{"NUL byte", "{\"call\":{\"id\":\"a\",\"code\":\"\x00\"}}", "a", CodeInvalid, `'\x00'`},
		{"invalid UTF-8", "{\"call\":{\"id\":\"a\",\"code\":\"\xff\"}}", "a", CodeInvalid, "invalid UTF-8"},
		{"half a surrogate pair", `{"call":{"id":"a","code":"\ud800"}}`, "a", CodeInvalid, `\ud800`},
		{"repeated name", `{"call":{"id":"a","code":"x","code":"y"}}`, "a", CodeInvalid, "duplicate object member name"},
		{"repeated id", `{"call":{"id":"a","id":"b"}}`, "a", CodeInvalid, "duplicate object member name"},
		{"deep nesting", `{"call":{"id":"a","code":` + nested, "a", CodeInvalid, ""},
		{"deep unknown field", `{"x":` + nested, "", CodeInvalid, ""},
		{"no id", `{"call":{"code":"x"}}`, "", CodeInvalid, "no id"},
		{"long id", `{"call":{"id":"` + strings.Repeat("i", 257) + `"}}`, strings.Repeat("i", 257), CodeInvalid, "id of 257 bytes"},
		{"call and cancel", `{"call":{"id":"a"},"cancel":"b"}`, "a", CodeInvalid, "a call and a cancel"},
		{"cancel of no string", `{"cancel":["a"]}`, "", CodeInvalid, "want string, got array"},
		{"negative deadline", `{"call":{"id":"a"},"deadline_ms":-1}`, "a", CodeInvalid, "deadline_ms of -1"},
		{"endless deadline", `{"call":{"id":"a"},"deadline_ms":9223372036854775807}`, "a", CodeInvalid, "deadline_ms of"},
		{"deadline of no number", `{"call":{"id":"a"},"deadline_ms":"1"}`, "a", CodeInvalid, "want 64-bit integer, got string"},
		{"oversized", `{"call":{"id":"a","code":"` + strings.Repeat("x", maxCallBody) + `"}}`, "a", CodeTooLarge, "8388608 bytes"},
		{"oversized, id last", `{"call":{"code":"` + strings.Repeat("x", maxCallBody) + `","id":"a"}}`, "", CodeTooLarge, "8388608 bytes"},
		{"long names in a reason", `{"` + strings.Repeat("k", 5000) + `":1}`, "", CodeInvalid, `kkk"...`},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := answersOf(t, handler, []byte(c.line+"\n"+`{"call":{"id":"next","code":"1"}}`))
			if len(frames) != 2 {
				t.Fatalf("got %d answers, want one for the line and one for its neighbour: %+v", len(frames), frames)
			}
			if frames[0].ID == "next" {
				frames[0], frames[1] = frames[1], frames[0]
			}
			got := frames[0]
			if got.ID != c.id || got.Error == nil || got.Error.Code != c.code || !strings.Contains(got.Error.Message, c.want) {
				t.Errorf("got %q %+v, want %q %s with %q", got.ID, got.Error, c.id, c.code, c.want)
			}
			if got.Error != nil && len(got.Error.Message) > 300 {
				t.Errorf("the reason has %d bytes", len(got.Error.Message))
			}
			if frames[1].Result == nil || frames[1].Result.Status != sandbox.StatusOK {
				t.Errorf("the neighbour got %+v", frames[1].Error)
			}
		})
	}
	for _, req := range fake.Requests() {
		if req.ID != "next" {
			t.Errorf("a bad call was executed: %+v", req)
		}
	}
}

func TestBadItemsOfABatchLeaveTheirNeighboursAlone(t *testing.T) {
	handler := NewHandler(&sandboxtest.Fake{}, Config{})
	items := []struct{ item, want string }{
		{`{"id":"0","code":"x"}`, ""},
		{`{"id":"1","cod":"x"}`, "unknown field"},
		{`7`, "want object, got number"},
		{`{"id":"3","code":"` + "\xff" + `"}`, "invalid UTF-8"},
		{`{"id":"4","code":"x","code":"y"}`, "duplicate"},
		{`{"id":"5","code":"` + strings.Repeat("x", maxCallBody) + `"}`, "8388608 bytes"},
		{`null`, "names no program"},
		{`{}`, "names no program"},
		{`{"id":"8","code":""}`, ""}, // an empty program
		{`{"id":"7","code":"x"}`, ""},
	}
	var all []string
	for _, c := range items {
		all = append(all, c.item)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, PathBatch, strings.NewReader(`{"calls":[`+strings.Join(all, ",")+`]}`)))
	var out BatchAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || len(out.Answers) != len(items) {
		t.Fatalf("got %d %.200s, %v", w.Code, w.Body, err)
	}
	for i, c := range items {
		got := out.Answers[i]
		if c.want == "" && got.Result == nil || c.want != "" && (got.Error == nil || !strings.Contains(got.Error.Message, c.want)) {
			t.Errorf("item %d: got %+v, want %q", i, got.Error, c.want)
		}
	}
}
