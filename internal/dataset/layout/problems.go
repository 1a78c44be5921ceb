package layout

import (
	"encoding/json/jsontext"
	"strconv"
	"strings"

	"temper/internal/chat"
)

// needText returns the text of the first of the named members that is there.
func needText(o *Object, names ...string) (string, error) {
	for _, name := range names {
		v, ok := o.Get(name)
		if !ok {
			continue
		}
		text, ok := textOf(v)
		if !ok {
			return "", reject(WrongType, "%s: want a text, have %s", name, kindName(v))
		}
		return text, nil
	}
	return "", reject(MissingField, "%s is missing", strings.Join(names, " or "))
}

// optionalText returns the text of a member, and a number as it is written; "" for any
// other kind.
func optionalText(o *Object, names ...string) string {
	for _, name := range names {
		v, ok := o.Get(name)
		if !ok {
			continue
		}
		if text, ok := textOf(v); ok {
			return text
		}
		if v.Kind() == '0' {
			return string(v)
		}
	}
	return ""
}

func kindName(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		return "a text"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 'n':
		return "null"
	default:
		return "true or false"
	}
}

// answerOf reads an answer: a text, a number as it is written, or a list of one.
func answerOf(v jsontext.Value) (string, error) {
	switch v.Kind() {
	case '"':
		text, _ := textOf(v)
		return strings.TrimSpace(text), nil
	case '0':
		return wholeNumber(string(v)), nil
	case 'n':
		return "", nil
	case '[':
		items, err := elements(v)
		if err != nil {
			return "", reject(NotJSON, "%v", err)
		}
		switch len(items) {
		case 0:
			return "", nil
		case 1:
			return answerOf(items[0])
		}
		return "", reject(AnswerList, "the answer is a list of %d", len(items))
	default:
		return "", reject(WrongType, "answer: want a text or a number, have %s", kindName(v))
	}
}

// wholeNumber writes 33.0 as 33: a whole number that went through a column of floats.
func wholeNumber(text string) string {
	if head, zeros, ok := strings.Cut(text, "."); ok && strings.Trim(zeros, "0") == "" {
		return head
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, "eE") && f == float64(int64(f)) && f < 1<<53 && f > -1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return text
}

// takeAnswer reads the answer under the first of the names that is there.
func takeAnswer(o *Object, item *Item, names ...string) (err error) {
	for _, name := range names {
		if v, ok := o.At(name); ok {
			item.Answer, err = answerOf(v)
			return err
		}
	}
	return nil // cleaning drops a row without an answer
}

// common takes what many layouts call alike.
func common(o *Object, item *Item) {
	item.ID = optionalText(o, "unique_id", "id", "ID", "uuid", "problem_idx", "index")
	item.License = optionalText(o, "license", "licence")
}

// isOwn recognizes our own problems.
func isOwn(o *Object) bool {
	return o.kind("env") == '"' && o.kind("prompt") == '"' && o.Has("answer")
}

func readOwn(o *Object, item *Item, _ Options) (err error) {
	common(o, item)
	item.Source = optionalText(o, "source")
	item.Fixture = optionalText(o, "fixture")
	item.Env = optionalText(o, "env")
	item.Level, _ = strconv.Atoi(optionalText(o, "level"))
	if item.Prompt, err = needText(o, "prompt"); err != nil {
		return err
	}
	return takeAnswer(o, item, "answer")
}

// isVerl recognizes verl's columns, which DAPO and rStar2 share.
func isVerl(o *Object) bool { return o.kind("reward_model") == '{' && o.Has("prompt") }

func readVerl(o *Object, item *Item, _ Options) error {
	common(o, item)
	item.Source = optionalText(o, "data_source")
	if v, ok := o.At("extra_info.index"); ok && item.ID == "" {
		item.ID = strings.Trim(string(v), `"`)
	}
	prompt, _ := o.Get("prompt")
	if err := readPrompt(prompt, item); err != nil {
		return err
	}
	if cut, ok := cutInstruction(item.Prompt); ok {
		item.Prompt = cut
		item.Notes = append(item.Notes, InstructionRemoved)
	}
	return takeAnswer(o, item, "reward_model.ground_truth", "solution", "answer")
}

// readPrompt reads a prompt: a text, or messages of which one is the user's.
func readPrompt(v jsontext.Value, item *Item) error {
	if text, ok := textOf(v); ok {
		item.Prompt = text
		return nil
	}
	messages, err := readMessageList(v)
	if err != nil {
		return err
	}
	system := ""
	for _, m := range messages {
		switch {
		case m.Role == chat.RoleSystem && item.Prompt == "":
			system = m.Content
		case m.Role == chat.RoleUser && item.Prompt == "":
			item.Prompt = m.Content
		default:
			return reject(ManyTurns, "the prompt has %d messages, want one of the user", len(messages))
		}
	}
	if system != "" && item.Prompt != "" {
		item.Prompt = system + "\n\n" + item.Prompt
		item.Notes = append(item.Notes, SystemJoined)
	}
	return nil
}

// The words around each problem of DAPO-Math-17k. A run has its own words for that.
const (
	dapoHead = "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
	dapoTail = "\n\nRemember to put your answer on its own line after \"Answer:\"."
)

func cutInstruction(prompt string) (string, bool) {
	cut, head := strings.CutPrefix(prompt, dapoHead)
	cut, tail := strings.CutSuffix(cut, dapoTail)
	return cut, head || tail
}

// isOpenMath recognizes OpenMathReasoning.
func isOpenMath(o *Object) bool { return o.kind("problem") == '"' && o.Has("expected_answer") }

func readOpenMath(o *Object, item *Item, _ Options) (err error) {
	common(o, item)
	item.Source = optionalText(o, "problem_source")
	if item.Prompt, err = needText(o, "problem"); err != nil {
		return err
	}
	return takeAnswer(o, item, "expected_answer")
}

// isGSM8K recognizes an answer whose last line is "#### n".
func isGSM8K(o *Object) bool {
	if o.kind("question") != '"' || o.kind("answer") != '"' {
		return false
	}
	answer, _ := o.Get("answer")
	return strings.Contains(string(answer), "####")
}

func readGSM8K(o *Object, item *Item, _ Options) (err error) {
	common(o, item)
	if item.Prompt, err = needText(o, "question"); err != nil {
		return err
	}
	solution, err := needText(o, "answer")
	if err != nil {
		return err
	}
	if at := strings.LastIndex(solution, "####"); at >= 0 {
		item.Answer = strings.ReplaceAll(strings.TrimSpace(solution[at+len("####"):]), ",", "")
	}
	return nil
}

// isMath500 recognizes MATH with its subjects.
func isMath500(o *Object) bool {
	return o.kind("problem") == '"' && o.Has("answer") && (o.Has("subject") || o.Has("type", "level"))
}

func readMath500(o *Object, item *Item, _ Options) (err error) {
	common(o, item)
	item.Level, _ = strconv.Atoi(strings.TrimPrefix(optionalText(o, "level"), "Level "))
	if item.Prompt, err = needText(o, "problem"); err != nil {
		return err
	}
	return takeAnswer(o, item, "answer")
}

// The names under which plain sets keep a problem and its answer.
var (
	promptNames = []string{"problem", "question", "Problem", "Question", "prompt"}
	answerNames = []string{"answer", "Answer", "final_answer", "ground_truth", "gold", "target", "solution"}
)

// isQuestion recognizes any text with an answer.
func isQuestion(o *Object) bool {
	for _, name := range promptNames {
		if o.kind(name) == '"' {
			return o.Has("answer") || o.Has("Answer") || o.Has("final_answer") || o.Has("ground_truth") || o.Has("gold") || o.Has("target") || o.Has("solution")
		}
	}
	return false
}

func readQuestion(o *Object, item *Item, _ Options) (err error) {
	common(o, item)
	item.Source = optionalText(o, "source", "data_source")
	if item.Prompt, err = needText(o, promptNames...); err != nil {
		return err
	}
	return takeAnswer(o, item, answerNames...)
}

// readMapped reads a row by a field map.
func readMapped(o *Object, item *Item, opts Options) error {
	at := func(field string) (jsontext.Value, bool) {
		path := opts.Map[field]
		if path == "" {
			return nil, false
		}
		return o.At(path)
	}
	text := func(field string) string {
		v, ok := at(field)
		if s, isText := textOf(v); ok && isText {
			return s
		} else if ok && v.Kind() == '0' {
			return string(v)
		}
		return ""
	}
	item.ID, item.Source, item.License = text("id"), text("source"), text("license")
	item.Level, _ = strconv.Atoi(text("level"))
	need := func(field string) (jsontext.Value, error) {
		v, ok := at(field)
		if !ok {
			return nil, reject(MissingField, "%s is missing, for %s", opts.Map[field], field)
		}
		return v, nil
	}
	if opts.Map["messages"] != "" {
		v, err := need("messages")
		if err != nil {
			return err
		}
		tools, _ := at("tools")
		return takeMessages(v, tools, item)
	}
	prompt, err := need("prompt")
	if err != nil {
		return err
	}
	if opts.Map["completion"] != "" {
		completion, err := need("completion")
		if err != nil {
			return err
		}
		return takeCompletion(text("system"), prompt, completion, nil, item)
	}
	if err := readPrompt(prompt, item); err != nil {
		return err
	}
	answer, ok := at("answer")
	if !ok {
		return nil
	}
	item.Answer, err = answerOf(answer)
	return err
}
