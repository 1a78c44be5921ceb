package codejudge_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/codejudge"
	"temper/sandbox/sandboxtest"
)

// programs is the executor of these tests: it knows what a few programs do.
func programs(req sandbox.Request) (sandbox.Result, error) {
	res := sandbox.Result{Status: sandbox.StatusOK, Usage: sandbox.Usage{Wall: 250 * time.Millisecond}}
	switch req.Code {
	case "print(1+1)":
		res.Stdout = "2\n"
	case "print(input())":
		if req.Stdin == "" {
			res.Status, res.ExitCode, res.Stderr = sandbox.StatusError, 1, "EOFError: EOF when reading a line\n"
			break
		}
		res.Stdout = req.Stdin + "\n"
	case "value":
		res.Value = "6"
	case "blanks":
		res.Stdout = "\x1c\u00a0\n 9 \x1f\t"
	case "long":
		res.Stdout, res.Stderr = strings.Repeat("\u00e9", 3000), strings.Repeat("e", 1001)
	case "sleep(10)":
		res.Status, res.ExitCode, res.Stdout, res.Usage.Wall = sandbox.StatusTimeLimit, 137, "before\n", 10*time.Second
	case "flood":
		res.Status, res.Reason, res.Stdout, res.Stderr = sandbox.StatusOutputLimit, "wrote more than 9 bytes", "x", "old"
	case "bytearray(1<<40)":
		res.Status, res.Reason, res.Stderr = sandbox.StatusMemoryLimit, "uncaught MemoryError", "MemoryError\n"
	case "segfault":
		res.Status, res.Reason, res.ExitCode = sandbox.StatusKilled, "killed by SIGSEGV", 139
	case "too long":
		res.Status, res.Reason = sandbox.StatusRefused, "code of 9 bytes is above the limit of 8"
	case "broken":
		res.Status, res.Reason, res.Stdout = sandbox.StatusInternal, "the jail could not be entered", "x"
	case "odd":
		return res, errors.New("a fault that nobody named")
	}
	return res, nil
}

// generated matches the names that the service makes up.
var generated = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// normal replaces generated names by "uuid" everywhere in v.
func normal(v any) any {
	switch v := v.(type) {
	case string:
		if generated.MatchString(v) {
			return "uuid"
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	}
	return v
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return normal(v)
}

// post sends body and returns the code and the body of the answer.
func post(t *testing.T, h http.Handler, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	h.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

// Complaints of the original's framework about a field of a single submission.
const (
	noType     = `{"type":"missing","loc":["body","type"],"msg":"Field required","input":{}}`
	noSolution = `{"type":"missing","loc":["body","solution"],"msg":"Field required","input":{}}`
	noObject   = `{"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":`
	languages  = `"msg":"Input should be 'python', 'cpp' or 'math'","ctx":{"expected":"'python', 'cpp' or 'math'"}`
)

// TestGolden holds the pairs of request and answer that the original gives,
// except for those of the batches with a bad item.
func TestGolden(t *testing.T) {
	ok := `"success":true,"run_success":true,"cost":0.25`
	wrong := `"success":false,"run_success":true,"cost":0.25`
	bad := `"success":false,"run_success":false,"cost":0.25`
	none := `"success":false,"run_success":false,"cost":0.0,"stdout":null`
	tests := []struct {
		name, path, body string
		code             int
		want             string
	}{
		// Programs.
		{"run", "/run", `{"type":"python","solution":"print(1+1)","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"stdout":"2\n","stderr":"","reason":""}`},
		{"judge", "/judge", `{"type":"python","solution":"print(1+1)","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"name is made up", "/judge", `{"type":"python","solution":"print(1+1)"}`, 200, `{"sub_id":"uuid",` + ok + `,"reason":""}`},
		{"empty and null name too", "/judge", `{"type":"python","solution":"print(1+1)","sub_id":""}`, 200, `{"sub_id":"uuid",` + ok + `,"reason":""}`},
		{"input", "/run", `{"type":"python","solution":"print(input())","input":"9","expected_output":"9","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"stdout":"9\n","stderr":"","reason":""}`},
		{"expected is stripped too", "/judge", `{"type":"python","solution":"print(1+1)","expected_output":" \n2\t","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"strip knows every blank", "/judge", `{"type":"python","solution":"blanks","expected_output":"9","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"wrong output", "/judge", `{"type":"python","solution":"print(input())","input":"a","expected_output":"b","sub_id":"a"}`, 200, `{"sub_id":"a",` + wrong + `,"reason":""}`},
		{"nothing expected is not the same as not asked", "/judge", `{"type":"python","solution":"print(1+1)","expected_output":"","sub_id":"a"}`, 200, `{"sub_id":"a",` + wrong + `,"reason":""}`},
		{"missing input", "/run", `{"type":"python","solution":"print(input())","input":"","expected_output":"a","sub_id":"a"}`, 200, `{"sub_id":"a",` + bad + `,"stdout":"","stderr":"EOFError: EOF when reading a line\n","reason":""}`},
		{"null input", "/judge", `{"type":"python","solution":"print(input())","input":null,"expected_output":null,"sub_id":"a"}`, 200, `{"sub_id":"a",` + bad + `,"reason":""}`},
		{"value of a last expression is not shown", "/run", `{"type":"python","solution":"value","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"stdout":"","stderr":"","reason":""}`},
		{"streams are cut by characters", "/run", `{"type":"python","solution":"long","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"stdout":"` + strings.Repeat("\u00e9", 1000) + `","stderr":"` + strings.Repeat("e", 1000) + `","reason":""}`},
		{"the whole of a stream is compared", "/judge", `{"type":"python","solution":"long","expected_output":"` + strings.Repeat("\u00e9", 3000) + `","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"time limit", "/run", `{"type":"python","solution":"sleep(10)","expected_output":"a","sub_id":"a"}`, 200, `{"sub_id":"a","success":false,"run_success":false,"cost":10.0,"stdout":"before\nSuicide from timeout.\n","stderr":"","reason":"worker_timeout"}`},
		{"output limit", "/run", `{"type":"python","solution":"flood","sub_id":"a"}`, 200, `{"sub_id":"a",` + bad + `,"stdout":"x","stderr":"wrote more than 9 bytes\nold\n","reason":""}`},
		{"memory limit", "/run", `{"type":"python","solution":"bytearray(1<<40)","sub_id":"a"}`, 200, `{"sub_id":"a",` + bad + `,"stdout":"","stderr":"uncaught MemoryError\nMemoryError\n","reason":""}`},
		{"killed", "/run", `{"type":"python","solution":"segfault","sub_id":"a"}`, 200, `{"sub_id":"a",` + bad + `,"stdout":"","stderr":"killed by SIGSEGV\n","reason":""}`},
		{"refused", "/run", `{"type":"python","solution":"too long","sub_id":"a"}`, 200, `{"sub_id":"a",` + none + `,"stderr":"code of 9 bytes is above the limit of 8","reason":"invalid_input"}`},
		{"internal", "/run", `{"type":"python","solution":"broken","sub_id":"a"}`, 200, `{"sub_id":"a",` + none + `,"stderr":null,"reason":"internal_error"}`},
		{"unknown fault", "/run", `{"type":"python","solution":"odd","sub_id":"a"}`, 200, `{"sub_id":"a",` + none + `,"stderr":null,"reason":"internal_error"}`},
		{"cpp", "/run", `{"type":"cpp","solution":"int main(){}","sub_id":"a"}`, 200, `{"sub_id":"a",` + none + `,"stderr":"type cpp is not supported: only python runs here","reason":"internal_error"}`},
		{"math", "/judge", `{"type":"math","solution":"1","sub_id":"a"}`, 200, `{"sub_id":"a","success":false,"run_success":false,"cost":0.0,"reason":"internal_error"}`},
		{"options and unknown fields", "/judge", `{"type":"python","solution":"print(1+1)","options":{"k":"v"},"extra":[1],"sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"the last of two fields counts", "/judge", `{"type":"python","solution":"odd","solution":"print(1+1)","sub_id":"a"}`, 200, `{"sub_id":"a",` + ok + `,"reason":""}`},
		{"half a surrogate pair", "/judge", `{"type":"python","solution":"\ud800","sub_id":"a"}`, 200, `{"sub_id":"a","success":false,"run_success":false,"cost":0.0,"reason":"invalid_input"}`},

		// Complaints about a single submission.
		{"empty object", "/run", `{}`, 422, `{"detail":[` + noType + `,` + noSolution + `]}`},
		{"names have a case", "/run", `{"Type":"python"}`, 422, strings.ReplaceAll(`{"detail":[`+noType+`,`+noSolution+`]}`, `{}`, `{"Type":"python"}`)},
		{"no body", "/judge", ``, 422, `{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}`},
		{"list", "/run", `[]`, 422, noObject + `[]}]}`},
		{"number", "/run", `3`, 422, noObject + `3}]}`},
		{"null", "/run", `null`, 422, noObject + `null}]}`},
		{"every field wrong", "/run", `{"type":"java","solution":3,"input":4,"expected_output":[],"sub_id":7,"options":[]}`, 422, `{"detail":[
			{"type":"string_type","loc":["body","sub_id"],"msg":"Input should be a valid string","input":7},
			{"type":"literal_error","loc":["body","type"],"input":"java",` + languages + `},
			{"type":"dict_type","loc":["body","options"],"msg":"Input should be a valid dictionary","input":[]},
			{"type":"string_type","loc":["body","solution"],"msg":"Input should be a valid string","input":3},
			{"type":"string_type","loc":["body","input"],"msg":"Input should be a valid string","input":4},
			{"type":"string_type","loc":["body","expected_output"],"msg":"Input should be a valid string","input":[]}]}`},
		{"options of no strings", "/judge", `{"type":3,"solution":null,"options":{"a":1,"b":null}}`, 422, `{"detail":[
			{"type":"literal_error","loc":["body","type"],"input":3,` + languages + `},
			{"type":"string_type","loc":["body","options","a"],"msg":"Input should be a valid string","input":1},
			{"type":"string_type","loc":["body","options","b"],"msg":"Input should be a valid string","input":null},
			{"type":"string_type","loc":["body","solution"],"msg":"Input should be a valid string","input":null}]}`},
		{"invalid UTF-8", "/run", "{\"type\":\"python\",\"solution\":\"\xff\"}", 400, `{"detail":"There was an error parsing the body"}`},

		// Batches.
		{"batch", "/run/batch", `{"submissions":[{"type":"python","solution":"print(1+1)","sub_id":"q"}],"sub_id":"b"}`, 200, `{"sub_id":"b","results":[{"sub_id":"q",` + ok + `,"stdout":"2\n","stderr":"","reason":""}]}`},
		{"order", "/judge/long-batch", `{"type":"batch","submissions":[{"type":"python","solution":"print(input())","input":"a","expected_output":"b","sub_id":"1"},{"type":"python","solution":"print(input())","input":"a","expected_output":"a","sub_id":"2"},{"type":"python","solution":"print(input())","input":"","sub_id":"3"}]}`, 200,
			`{"sub_id":"uuid","results":[{"sub_id":"1",` + wrong + `,"reason":""},{"sub_id":"2",` + ok + `,"reason":""},{"sub_id":"3",` + bad + `,"reason":""}]}`},
		{"a bad item fails alone", "/run/long-batch", `{"submissions":[{"type":"python","solution":"print(1+1)","sub_id":"1"},{"type":"python","solution":"value","input":5,"sub_id":"2"},null,7,{"type":"rust"},{"type":"python","solution":"` + "\xff" + `","sub_id":"6"},{"type":"python","solution":"print(1+1)","sub_id":"7"}],"sub_id":"b"}`, 200,
			`{"sub_id":"b","results":[{"sub_id":"1",` + ok + `,"stdout":"2\n","stderr":"","reason":""},
			{"sub_id":"2",` + none + `,"stderr":"input: Input should be a valid string","reason":"invalid_input"},
			{"sub_id":"uuid",` + none + `,"stderr":"Input should be a valid dictionary or object to extract fields from","reason":"invalid_input"},
			{"sub_id":"uuid",` + none + `,"stderr":"Input should be a valid dictionary or object to extract fields from","reason":"invalid_input"},
			{"sub_id":"uuid",` + none + `,"stderr":"type: Input should be 'python', 'cpp' or 'math'; solution: Field required","reason":"invalid_input"},
			{"sub_id":"6",` + none + `,"stderr":"Input should hold valid Unicode only","reason":"invalid_input"},
			{"sub_id":"7",` + ok + `,"stdout":"2\n","stderr":"","reason":""}]}`},
		{"batch of nothing", "/run/batch", `{}`, 422, `{"detail":[{"type":"missing","loc":["body","submissions"],"msg":"Field required","input":{}}]}`},
		{"empty batch", "/run/long-batch", `{"submissions":[]}`, 422, `{"detail":[{"type":"too_short","loc":["body","submissions"],"msg":"List should have at least 1 item after validation, not 0","input":[],"ctx":{"field_type":"List","min_length":1,"actual_length":0}}]}`},
		{"batch of an object", "/judge/batch", `{"submissions":{}}`, 422, `{"detail":[{"type":"list_type","loc":["body","submissions"],"msg":"Input should be a valid list","input":{}}]}`},
		{"batch of null", "/judge/batch", `{"submissions":null}`, 422, `{"detail":[{"type":"list_type","loc":["body","submissions"],"msg":"Input should be a valid list","input":null}]}`},
		{"batch is a list", "/judge/batch", `[]`, 422, noObject + `[]}]}`},
		{"wrong envelope", "/run/batch", `{"type":"x","submissions":[{"type":"python","solution":"1"}],"sub_id":5}`, 422, `{"detail":[
			{"type":"string_type","loc":["body","sub_id"],"msg":"Input should be a valid string","input":5},
			{"type":"literal_error","loc":["body","type"],"msg":"Input should be 'batch'","input":"x","ctx":{"expected":"'batch'"}}]}`},
		{"type null", "/run/batch", `{"type":null,"submissions":[{"type":"python","solution":"1"}]}`, 422, `{"detail":[
			{"type":"literal_error","loc":["body","type"],"msg":"Input should be 'batch'","input":null,"ctx":{"expected":"'batch'"}}]}`},
	}
	h := codejudge.NewHandler(&sandboxtest.Fake{Func: programs}, codejudge.Config{})
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			code, got := post(t, h, c.path, c.body)
			if code != c.code {
				t.Fatalf("code %d, want %d: %s", code, c.code, got)
			}
			if diff := cmp.Diff(decoded(t, got), decoded(t, c.want)); diff != "" {
				t.Errorf("answer differs (-got +want):\n%s", diff)
			}
		})
	}
}

// TestSyntaxErrors compares all but the words of the parser.
func TestSyntaxErrors(t *testing.T) {
	h := codejudge.NewHandler(&sandboxtest.Fake{Func: programs}, codejudge.Config{})
	for body, at := range map[string]float64{
		`{"type":`: 8, `{"type":"python",}`: 17, `{"type":"python" "solution":1}`: 17,
		`{"type":"python","solution":"x"} trailing`: 33, `nonsense`: 1, "{\"type\":\"python\",\"solution\":\"a\nb\"}": 30,
	} {
		code, got := post(t, h, "/run", body)
		var answer struct {
			Detail []struct {
				Type, Msg string
				Loc       []any
				Input     map[string]any
				Ctx       map[string]string
			}
		}
		if err := json.Unmarshal([]byte(got), &answer); err != nil || code != 422 || len(answer.Detail) != 1 {
			t.Fatalf("%q: %d %s", body, code, got)
		}
		d := answer.Detail[0]
		if d.Type != "json_invalid" || d.Msg != "JSON decode error" || d.Ctx["error"] == "" || len(d.Input) != 0 {
			t.Errorf("%q: %+v", body, d)
		}
		if where, _ := d.Loc[1].(float64); d.Loc[0] != "body" || where < at-1 || where > at+1 {
			t.Errorf("%q: place %v, want body, %v", body, d.Loc, at)
		}
	}
}

// TestCostHasAFraction holds for clients that tell 0 from 0.0.
func TestCostHasAFraction(t *testing.T) {
	h := codejudge.NewHandler(&sandboxtest.Fake{}, codejudge.Config{})
	_, got := post(t, h, "/run", `{"sub_id":"a","type":"python","solution":"<&>"}`)
	want := `{"sub_id":"a","success":true,"run_success":true,"cost":0.0,"stdout":"","stderr":"","reason":""}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
