package importer

import (
	"encoding/hex"
	"encoding/json/jsontext"
	"fmt"
	"strconv"
	"strings"

	"temper/internal/chat"
	"temper/internal/dataset"
	"temper/internal/dataset/layout"
)

// write writes im.item as a line, unless there is one with its prompt already.
func (im *imported) write(l *layout.Layout, file *File) (*layout.Reject, error) {
	item := &im.item
	key := im.keyOf(l)
	if _, twice := im.seen[key]; twice && !im.opts.KeepDuplicates {
		what := "the prompt of an earlier row"
		if l.Kind == layout.Dialogues {
			what = "an earlier row"
		}
		return &layout.Reject{Reason: layout.Duplicate, Detail: "is " + what}, nil
	} else if twice {
		key = dataset.KeyOf(hex.EncodeToString(key[:]), file.Path, strconv.FormatInt(file.Read, 10))
	}
	im.line = im.line[:0]
	if l.Kind == layout.Problems {
		if why := im.nameProblem(key); why != nil {
			return why, nil
		}
		im.line = appendProblem(im.line, item, im.opts.Env)
	} else {
		im.line = appendDialogue(im.line, item, key)
	}
	im.seen[key] = struct{}{}
	return nil, im.out.write(im.line, key)
}

// keyOf is the key of the problem, or of the whole dialogue: the same question may well
// have several answers.
func (im *imported) keyOf(l *layout.Layout) dataset.Key {
	item := &im.item
	if l.Kind == layout.Problems {
		if item.Fixture == "" {
			return dataset.KeyOf(item.Prompt)
		}
		return dataset.KeyOf(item.Prompt, item.Env, item.Fixture)
	}
	var all strings.Builder
	for _, m := range item.Dialogue.Messages {
		all.WriteString(m.Role + "\x00" + m.Content + "\x00")
		for _, c := range m.ToolCalls {
			all.WriteString(c.Function.Name + "\x00" + c.Function.Arguments + "\x00")
		}
	}
	for _, t := range item.Dialogue.Tools {
		all.Write(t)
	}
	return dataset.KeyOf(all.String())
}

// nameProblem gives a problem its id. Rows of our own format and of a field map keep
// theirs; that of any other is made of its prompt, so that it is the same in each import.
func (im *imported) nameProblem(key dataset.Key) *layout.Reject {
	item := &im.item
	own := item.Env != "" || im.opts.Fields.Map["id"] != ""
	if !own || item.ID == "" {
		item.ID = "p-" + hex.EncodeToString(key[:8])
		return nil
	}
	if !validID(item.ID) {
		return &layout.Reject{Reason: layout.BadID, Detail: fmt.Sprintf("id %.40q: want up to 200 visible ASCII signs without '/'", item.ID)}
	}
	idKey := dataset.KeyOf("\x00id", item.ID)
	if _, twice := im.seen[idKey]; twice {
		return &layout.Reject{Reason: layout.BadID, Detail: fmt.Sprintf("id %.40q is that of an earlier row", item.ID)}
	}
	im.seen[idKey] = struct{}{}
	im.out.remember(idKey)
	return nil
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if c < '!' || c > '~' || c == '/' {
			return false
		}
	}
	return id != "" && len(id) <= 200
}

// appendProblem writes a problem as encoding/json would.
func appendProblem(out []byte, item *layout.Item, env string) []byte {
	if item.Env != "" {
		env = item.Env
	}
	out = appendText(append(out, `{"id":`...), item.ID)
	out = appendText(append(out, `,"env":`...), env)
	if item.Level > 0 {
		out = strconv.AppendInt(append(out, `,"level":`...), int64(item.Level), 10)
	}
	out = appendText(append(out, `,"prompt":`...), item.Prompt)
	out = appendText(append(out, `,"answer":`...), item.Answer)
	if item.Fixture != "" {
		out = appendText(append(out, `,"fixture":`...), item.Fixture)
	}
	return append(appendOrigin(out, item), '}', '\n')
}

func appendOrigin(out []byte, item *layout.Item) []byte {
	out = appendText(append(out, `,"source":`...), item.Source)
	return appendText(append(out, `,"license":`...), item.License)
}

// appendText writes a JSON string. Callers have refused invalid UTF-8 before.
func appendText(out []byte, text string) []byte {
	quoted, err := jsontext.AppendQuote(out, text)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\uFFFD"))
	}
	return quoted
}

func appendDialogue(out []byte, item *layout.Item, key dataset.Key) []byte {
	out = appendText(append(out, `{"id":`...), "d-"+hex.EncodeToString(key[:8]))
	out = appendOrigin(out, item)
	if tools := item.Dialogue.Tools; tools != nil {
		out = append(out, `,"tools":[`...)
		for i, t := range tools {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, t...)
		}
		out = append(out, ']')
	}
	out = append(out, `,"messages":[`...)
	for i, m := range item.Dialogue.Messages {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendMessage(out, m)
	}
	return append(out, ']', '}', '\n')
}

func appendMessage(out []byte, m chat.Message) []byte {
	out = appendText(append(out, `{"role":`...), m.Role)
	if m.Content != "" {
		out = appendText(append(out, `,"content":`...), m.Content)
	}
	for i, c := range m.ToolCalls {
		head := `,"tool_calls":[`
		if i > 0 {
			head = ","
		}
		out = appendText(append(append(out, head...), `{"type":"function","function":{"name":`...), c.Function.Name)
		out = append(appendText(append(out, `,"arguments":`...), c.Function.Arguments), '}', '}')
	}
	if len(m.ToolCalls) > 0 {
		out = append(out, ']')
	}
	return append(out, '}')
}
