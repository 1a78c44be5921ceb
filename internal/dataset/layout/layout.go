// Package layout owns what the rows of public data sets mean: for each known layout, how
// its rows become problems or dialogues of ours, and how a file's layout is recognized. It
// reads no files and drops nothing for its quality.
//
// Invariant: a row becomes a whole problem or dialogue, or a Reject that says why not.
package layout

import (
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat"
)

// Kind is what rows become.
type Kind string

// Kinds.
const (
	Problems  Kind = "problems"
	Dialogues Kind = "dialogues"
)

// Item is what a row becomes.
type Item struct {
	// ID is the row's own name, "" for none. Source and License are those that the row
	// itself states.
	ID, Source, License string

	// Prompt and Answer are fields of a problem, the others are fields of our own format.
	// Answer is "" where there is none.
	Prompt, Answer string
	Env, Fixture   string
	Level          int

	// Dialogue is of a row that becomes one.
	Dialogue chat.Dialogue

	// Notes say what was changed beyond the form; see the constants.
	Notes []Note
}

// Note is a change of a row that its reader should know.
type Note string

// Notes.
const (
	InstructionRemoved Note = "instruction_removed" // the set's own instruction on how to write the answer
	SystemJoined       Note = "system_joined"       // a system message stands before the prompt now
	SystemRemoved      Note = "system_removed"      // it described the tools in words, which are schemas now
	ResultsReordered   Note = "results_reordered"   // tool results stand in the order of their calls now
	ReasoningRemoved   Note = "reasoning_removed"   // reasoning beside the content, which dialogues do not have
	EndRemoved         Note = "end_removed"         // messages behind the last one of the assistant
)

// Options are choices of the person who imports.
type Options struct {
	// Map names where fields are, by the names of ours; nil for none. See ParseMap.
	Map map[string]string
	// CodeTool is the tool of the call that code becomes.
	CodeTool string
}

// Layout is one public layout.
type Layout struct {
	Name  string
	Kind  Kind
	About string
	// match recognizes a row. read turns one into an Item.
	match func(*Object) bool
	read  func(*Object, *Item, Options) error
}

// Read turns a row into an item, which it overwrites. The error is a *Reject.
func (l *Layout) Read(o *Object, item *Item, opts Options) error {
	*item = Item{Notes: item.Notes[:0]}
	if err := l.read(o, item, opts); err != nil {
		return err
	}
	if l.Kind == Dialogues {
		return finish(item)
	}
	return nil
}

// All lists the layouts in the order in which they are tried.
func All() []*Layout {
	return []*Layout{
		{"temper", Problems, "problems in the format of a run", isOwn, readOwn},
		{"messages", Dialogues, "chat messages in the OpenAI form, with or without tools", isMessages, readMessages},
		{"toolace", Dialogues, "ToolACE: functions listed in the system message, calls as [f(a=1)]", isToolACE, readToolACE},
		{"sharegpt", Dialogues, "ShareGPT: conversations of from and value, with or without tools", isShareGPT, readShareGPT},
		{"glaive", Dialogues, "Glaive function calling v2: system and chat as text", isGlaive, readGlaive},
		{"xlam", Dialogues, "xLAM function calling: query, answers and tools", isXLAM, readXLAM},
		{"verl", Problems, "verl, DAPO and rStar2: prompt and reward_model.ground_truth", isVerl, readVerl},
		{"openmath", Problems, "OpenMathReasoning: problem and expected_answer", isOpenMath, readOpenMath},
		{"gsm8k", Problems, "GSM8K: question, and an answer that ends with #### n", isGSM8K, readGSM8K},
		{"math500", Problems, "MATH-500: problem, answer, subject and level", isMath500, readMath500},
		{"magicoder", Dialogues, "Magicoder: instruction or problem, and code, which becomes a call", isMagicoder, readMagicoder},
		{"completion", Dialogues, "prompt and completion, or instruction, input and output", isCompletion, readCompletion},
		{"aime", Problems, "AIME and its like: problem or question, and answer", isQuestion, readQuestion},
	}
}

// Mapped is the layout of a field map.
func Mapped(m map[string]string) *Layout {
	if m["messages"] != "" {
		return &Layout{Name: "map", Kind: Dialogues, read: readMapped}
	}
	if m["completion"] != "" {
		return &Layout{Name: "map", Kind: Dialogues, read: readMapped}
	}
	return &Layout{Name: "map", Kind: Problems, read: readMapped}
}

// ByName returns a layout.
func ByName(name string) (*Layout, error) {
	for _, l := range All() {
		if l.Name == name {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no layout %q, want one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the layouts.
func Names() []string {
	var out []string
	for _, l := range All() {
		out = append(out, l.Name)
	}
	return out
}

// Detect recognizes the layout of a row; nil where no layout fits.
func Detect(o *Object) *Layout {
	for _, l := range All() {
		if l.match(o) {
			return l
		}
	}
	return nil
}

// mapFields are the fields that a map can name.
var mapFields = []string{"prompt", "answer", "messages", "tools", "completion", "system", "id", "source", "license", "level"}

// ParseMap reads a field map such as prompt=question,answer=meta.gold.
func ParseMap(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		field, path, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || path == "" || !slices.Contains(mapFields, field) {
			return nil, fmt.Errorf("map %q: want FIELD=PATH with a field of %s", pair, strings.Join(mapFields, ", "))
		}
		if m[field] != "" {
			return nil, fmt.Errorf("map: %s is given twice", field)
		}
		m[field] = path
	}
	forms := 0
	for _, form := range [][]string{{"prompt", "answer"}, {"messages"}, {"prompt", "completion"}} {
		all := true
		for _, f := range form {
			all = all && m[f] != ""
		}
		if all {
			forms++
		}
	}
	if forms != 1 {
		return nil, fmt.Errorf("map %q: want prompt and answer, or messages, or prompt and completion", text)
	}
	return m, nil
}
