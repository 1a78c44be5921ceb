package codejudge

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"slices"
	"strings"
	"uuid"
)

// echoBytes bounds the input that an error message repeats; a larger input is left out.
const echoBytes = 4 << 10

// echo returns raw for an error message, or null if it is too long.
func echo(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || len(raw) > echoBytes || !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
		return json.RawMessage("null")
	}
	return raw
}

// fields reads the members of one object and collects the errors.
type fields struct {
	raw     json.RawMessage
	members map[string]json.RawMessage
	loc     []any
	details []detail
}

// newFields returns nil and an error detail when raw, which is valid JSON, is not an
// object. As in the original, names are case-sensitive, and the last of equal names counts.
func newFields(raw json.RawMessage, loc []any) (*fields, []detail) {
	f := &fields{raw: raw, loc: loc}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) || json.Unmarshal(raw, &f.members) != nil {
		return nil, []detail{{
			Type: "model_attributes_type", Loc: loc, Input: echo(raw),
			Msg: "Input should be a valid dictionary or object to extract fields from",
		}}
	}
	return f, nil
}

func (f *fields) complain(kind, msg string, raw json.RawMessage, ctx map[string]any, place ...any) {
	f.details = append(f.details, detail{
		Type: kind, Loc: slices.Concat(f.loc, place), Msg: msg, Input: echo(raw), Ctx: ctx,
	})
}

// text reads a member that must be a string; it returns nil for other types.
func (f *fields) text(name string) *string {
	raw, ok := f.members[name]
	if !ok {
		f.complain("missing", "Field required", f.raw, nil, name)
		return nil
	}
	return f.string(raw, name)
}

// optional reads a member that may also be null or absent.
func (f *fields) optional(name string) *string {
	raw, ok := f.members[name]
	if !ok || isNull(raw) {
		return nil
	}
	return f.string(raw, name)
}

func (f *fields) string(raw json.RawMessage, place ...any) *string {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		f.complain("string_type", "Input should be a valid string", raw, nil, place...)
		return nil
	}
	return s
}

// literal reads a member that must be one of the named strings.
func (f *fields) literal(name, names string, allowed ...string) string {
	raw, ok := f.members[name]
	if !ok {
		f.complain("missing", "Field required", f.raw, nil, name)
		return ""
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil || !slices.Contains(allowed, *s) {
		f.complain("literal_error", "Input should be "+names, raw, map[string]any{"expected": names}, name)
		return ""
	}
	return *s
}

// stringMap checks a member that may be null, absent, or an object of strings.
func (f *fields) stringMap(name string) {
	raw, ok := f.members[name]
	if !ok || isNull(raw) {
		return
	}
	inner, wrong := newFields(raw, nil)
	if wrong != nil {
		f.complain("dict_type", "Input should be a valid dictionary", raw, nil, name)
		return
	}
	for _, key := range sortedKeys(inner.members) {
		f.string(inner.members[key], name, key)
	}
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// orNew returns *id, or a new name for a submission or a batch without one.
func orNew(id *string) string {
	if id == nil || *id == "" {
		return uuid.NewV4().String()
	}
	return *id
}

// parseSubmission reads one submission. It always has an id; the other fields are valid
// only if there are no errors.
func parseSubmission(raw json.RawMessage, loc []any) (submission, []detail) {
	f, wrong := newFields(raw, loc)
	if wrong != nil {
		return submission{id: orNew(nil)}, wrong
	}
	// The reads are in the order of the original's errors.
	sub := submission{id: orNew(f.optional("sub_id"))}
	sub.language = language(f.literal("type", "'python', 'cpp' or 'math'",
		string(languagePython), string(languageCpp), string(languageMath)))
	f.stringMap("options") // accepted and without effect, as in the original
	if s := f.text("solution"); s != nil {
		sub.solution = *s
	}
	if s := f.optional("input"); s != nil {
		sub.input = *s
	}
	sub.expected = f.optional("expected_output")
	return sub, f.details
}

// item is one submission of a batch, or the error of an invalid one.
type item struct {
	sub   submission
	wrong []detail
}

// parseBatch reads a batch. It returns only errors of the envelope; each item keeps its
// errors.
func parseBatch(body []byte, maxItems int) (string, []item, []detail) {
	loc := []any{"body"}
	f, wrong := newFields(body, loc)
	if wrong != nil {
		return "", nil, wrong
	}
	id := orNew(f.optional("sub_id"))
	if _, ok := f.members["type"]; ok {
		f.literal("type", "'batch'", "batch")
	}
	items := f.items(maxItems)
	return id, items, f.details
}

// items reads the submissions one by one, without a second copy of a long list.
func (f *fields) items(most int) []item {
	const name = "submissions"
	raw, ok := f.members[name]
	if !ok {
		f.complain("missing", "Field required", f.raw, nil, name)
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		f.complain("list_type", "Input should be a valid list", raw, nil, name)
		return nil
	}
	var items []item
	for dec.More() {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil { // cannot fail: the whole body is valid JSON
			f.complain("json_invalid", "JSON decode error", nil, map[string]any{"error": err.Error()}, name, len(items))
			return nil
		}
		if len(items) == most {
			f.complain("too_long", "List has more items than this service holds", nil,
				map[string]any{"field_type": "List", "max_length": most}, name)
			return nil
		}
		items = append(items, parseItem(one, []any{"body", name, len(items)}))
	}
	if len(items) == 0 {
		f.complain("too_short", "List should have at least 1 item after validation, not 0", raw,
			map[string]any{"field_type": "List", "min_length": 1, "actual_length": 0}, name)
	}
	return items
}

// parseItem reads one submission of a batch. A text that a program could not receive
// unchanged (invalid UTF-8, or half a surrogate pair) is an error of this item.
func parseItem(raw json.RawMessage, loc []any) item {
	sub, wrong := parseSubmission(raw, loc)
	if len(wrong) == 0 && !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
		wrong = []detail{{Type: "string_unicode", Loc: loc, Msg: "Input should hold valid Unicode only", Input: echo(nil)}}
	}
	return item{sub: sub, wrong: wrong}
}

// syntax returns the error details of a body that is not JSON, or nil.
func syntax(body []byte) []detail {
	if len(bytes.TrimSpace(body)) == 0 {
		return []detail{{Type: "missing", Loc: []any{"body"}, Msg: "Field required", Input: json.RawMessage("null")}}
	}
	var whole json.RawMessage
	err := json.Unmarshal(body, &whole)
	if err == nil {
		return nil
	}
	var at int64
	var wrong *json.SyntaxError
	if errors.As(err, &wrong) {
		at = max(0, wrong.Offset-1)
	}
	return []detail{{
		Type: "json_invalid", Loc: []any{"body", at}, Msg: "JSON decode error",
		Input: json.RawMessage("{}"), Ctx: map[string]any{"error": strings.TrimPrefix(err.Error(), "json: ")},
	}}
}
