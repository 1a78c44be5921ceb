package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"temper/internal/answer"
	"temper/internal/openai/chatclient"
	"temper/internal/reward"
)

// Calls is the mode of function calls, as the abstract syntax trees of BFCL compare them:
// the key of a problem is a JSON object of functions, their schemas in OpenAI's form, and
// calls, a list of {name: {argument: [allowed values]}}. The model gets the functions and
// says one turn; nothing is executed.
const Calls Mode = "calls"

const methodCalls answer.Method = "calls"

// callKey is the key of a problem in mode Calls.
type callKey struct {
	Functions json.RawMessage `json:"functions"`
	// Calls are the calls that a right response makes, in any order; none where no function
	// fits.
	Calls []map[string]map[string][]any `json:"calls"`
}

// responseCall is a call of a response.
type responseCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// readCalls reads the key of a problem.
func readCalls(key string) (callKey, error) {
	var k callKey
	if err := json.Unmarshal([]byte(key), &k); err != nil {
		return k, fmt.Errorf("the key is no object of functions and calls: %w", err)
	}
	var functions []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(k.Functions, &functions); err != nil || len(functions) == 0 {
		return k, errors.New("the key has no list of functions in OpenAI's form")
	}
	names := map[string]bool{}
	for _, f := range functions {
		names[f.Function.Name] = f.Function.Name != ""
	}
	for i, c := range k.Calls {
		if len(c) != 1 {
			return k, fmt.Errorf("call %d of the key names %d functions, want 1", i+1, len(c))
		}
		for name := range c {
			if !names[name] {
				return k, fmt.Errorf("call %d of the key is of %q, which is none of its functions", i+1, name)
			}
		}
	}
	return k, nil
}

var callTag = regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`)

// judgeCalls compares the calls of a response.
func judgeCalls(key, response string) (reward.Verdict, error) {
	k, err := readCalls(key)
	if err != nil {
		return reward.Verdict{}, err
	}
	out := reward.Verdict{Method: methodCalls}
	var calls []responseCall
	for _, m := range callTag.FindAllStringSubmatch(response, -1) {
		var c responseCall
		if err := json.Unmarshal([]byte(m[1]), &c); err != nil || c.Name == "" {
			out.Extracted, out.Reason = strings.TrimSpace(m[1]), "a call is no JSON object of name and arguments"
			return out, nil
		}
		calls = append(calls, c)
	}
	text, err := json.Marshal(calls)
	if err != nil {
		return out, err
	}
	if len(calls) > 0 {
		out.Extracted = string(text)
	}
	switch {
	case len(calls) != len(k.Calls):
		out.Reason = fmt.Sprintf("%d calls, want %d", len(calls), len(k.Calls))
	case !paired(k.Calls, calls):
		out.Reason = "a call differs from what is allowed: " + firstDifference(k.Calls, calls)
	default:
		out.Correct = true
	}
	if out.Correct && out.Extracted == "" {
		out.Extracted = "[]"
	}
	return out, nil
}

// paired reports whether the calls can be given to the wanted ones, each to another.
func paired(want []map[string]map[string][]any, calls []responseCall) bool {
	owner := make([]int, len(calls)) // of which wanted call, -1 of none
	for i := range owner {
		owner[i] = -1
	}
	var place func(w int, tried []bool) bool
	place = func(w int, tried []bool) bool {
		for i, c := range calls {
			if tried[i] || matches(want[w], c) != "" {
				continue
			}
			tried[i] = true
			if owner[i] < 0 || place(owner[i], tried) {
				owner[i] = w
				return true
			}
		}
		return false
	}
	for w := range want {
		if !place(w, make([]bool, len(calls))) {
			return false
		}
	}
	return true
}

// firstDifference explains the first wanted call that no call meets.
func firstDifference(want []map[string]map[string][]any, calls []responseCall) string {
	for i, w := range want {
		difference := ""
		for _, c := range calls {
			if difference = matches(w, c); difference == "" {
				break
			}
		}
		if difference != "" {
			return fmt.Sprintf("call %d: %s", i+1, difference)
		}
	}
	return "two calls meet the same one"
}

// matches says how a call differs from a wanted one; "" when it does not.
func matches(want map[string]map[string][]any, c responseCall) string {
	arguments, ok := want[c.Name]
	if !ok {
		return fmt.Sprintf("the function %s", c.Name)
	}
	return missesOf(arguments, c.Arguments)
}

// missesOf compares arguments with the allowed values. An allowed empty text means that
// the argument may be left out.
func missesOf(allowed map[string][]any, got map[string]any) string {
	for name, v := range got {
		options, ok := allowed[name]
		if !ok {
			return "the argument " + name + ", which is not allowed"
		}
		fits := false
		for _, o := range options {
			fits = fits || sameValue(o, v)
		}
		if !fits {
			return "the value of the argument " + name
		}
	}
	for name, options := range allowed {
		if _, ok := got[name]; ok {
			continue
		}
		optional := false
		for _, o := range options {
			optional = optional || o == ""
		}
		if !optional {
			return "the argument " + name + " is missing"
		}
	}
	return ""
}

// sameValue compares a value with an allowed one: texts without regard to case, blanks and
// some punctuation, numbers by value, lists in order, and objects whose allowed form has a
// list of values for each key.
func sameValue(allowed, got any) bool {
	switch a := allowed.(type) {
	case string:
		g, ok := got.(string)
		return ok && plainText(a) == plainText(g)
	case []any:
		g, ok := got.([]any)
		if !ok || len(a) != len(g) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], g[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		options := map[string][]any{}
		for name, v := range a {
			list, isList := v.([]any)
			if !isList {
				list = []any{v}
			}
			options[name] = list
		}
		return missesOf(options, g) == ""
	default:
		return reflect.DeepEqual(allowed, got)
	}
}

var ignored = strings.NewReplacer(" ", "", ",", "", ".", "", "/", "", "-", "", "_", "", "*", "", "^", "", "'", `"`)

func plainText(s string) string { return ignored.Replace(strings.ToLower(s)) }

// turnText returns the text of a turn, with its calls as text, so that stored samples can
// be judged again.
func turnText(t chatclient.Turn) string {
	var parts []string
	if t.Content != "" {
		parts = append(parts, t.Content)
	}
	for _, c := range t.Calls {
		arguments := c.Function.Arguments
		if !json.Valid([]byte(arguments)) {
			arguments = "null, not JSON"
		}
		parts = append(parts, fmt.Sprintf("<tool_call>{%q: %q, %q: %s}</tool_call>", "name", c.Function.Name, "arguments", arguments))
	}
	return strings.Join(parts, "\n")
}
