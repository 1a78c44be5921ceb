package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"temper/internal/chat"
	"temper/internal/dataset/rows"
	"temper/internal/rl"
)

// SurveyOptions are the limits and formats that rows are checked against.
type SurveyOptions struct {
	// Format renders prompts and dialogues; nil where they are not rendered.
	Format *chat.Format
	// MaxTokens bounds a prompt or a dialogue; 0 for no bound.
	MaxTokens int
	// Against are the problems that are held out; nil for none.
	Against *HeldOut
}

// Survey is what files hold, and what is wrong with them.
type Survey struct {
	Files    []Surveyed         `json:"files"`
	Findings map[string]Finding `json:"findings"`

	opts SurveyOptions
	seen map[Key]string // where a problem was first
	ids  map[string]string
}

// Surveyed is one file.
type Surveyed struct {
	Path string `json:"path"`
	// Kind is problems or dialogues.
	Kind string `json:"kind"`
	Rows int    `json:"rows"`
	// LongestTokens is 0 where nothing was rendered.
	LongestTokens int `json:"longest_tokens,omitempty"`
	// OwnTools are dialogues with tools of their own, and Tools all of these.
	OwnTools int `json:"own_tools,omitempty"`
	Tools    int `json:"tools,omitempty"`
	// Fitted are dialogues that the format needed a change of.
	Fitted int `json:"fitted,omitempty"`
	// Origins count the rows by source and licence.
	Origins map[string]int `json:"origins"`
}

// Finding is one thing that is wrong.
type Finding struct {
	Rows     int      `json:"rows"`
	Examples []string `json:"examples"`
}

// Names of findings.
const (
	FindMalformed = "malformed"
	FindDuplicate = "same prompt as another row"
	FindHeldOut   = "in an evaluation set"
	FindTooLong   = "too long"
	FindMisfit    = "does not fit the chat format"
)

// Wrong is the number of rows that a run would refuse or drop.
func (s *Survey) Wrong() int {
	n := 0
	for _, f := range s.Findings {
		n += f.Rows
	}
	return n
}

// SurveyFiles reads files of problems or dialogues. It returns the error of a file that
// cannot be read at all.
func SurveyFiles(paths []string, opts SurveyOptions) (*Survey, error) {
	s := &Survey{Findings: map[string]Finding{}, opts: opts, seen: map[Key]string{}, ids: map[string]string{}}
	for _, path := range paths {
		if err := s.file(path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Survey) add(what, path string, line int, format string, args ...any) {
	f := s.Findings[what]
	f.Rows++
	if len(f.Examples) < maxReported {
		f.Examples = append(f.Examples, fmt.Sprintf("%s:%d: ", path, line)+fmt.Sprintf(format, args...))
	}
	s.Findings[what] = f
}

func (s *Survey) file(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	lines, err := rows.NewLines(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f := Surveyed{Path: path, Origins: map[string]int{}}
	for end := false; !end; {
		var line []byte
		line, end, err = lines.Next()
		switch {
		case errors.Is(err, rows.ErrLong):
			s.add(FindMalformed, path, lines.Num(), "%v", err)
		case err != nil:
			return fmt.Errorf("%s:%d: %w", path, lines.Num(), err)
		case len(bytes.TrimSpace(line)) > 0:
			s.line(&f, line, lines.Num())
		}
	}
	if f.Rows == 0 && len(s.Findings) == 0 {
		return fmt.Errorf("%s: no lines", path)
	}
	s.Files = append(s.Files, f)
	return nil
}

// line takes a row. The first one decides what the file has.
func (s *Survey) line(f *Surveyed, line []byte, num int) {
	if f.Kind == "" {
		f.Kind = "problems"
		if bytes.Contains(line, []byte(`"messages"`)) {
			f.Kind = "dialogues"
		}
	}
	if f.Kind == "dialogues" {
		var d chat.Dialogue
		err := decode(line, &d)
		if err == nil {
			err = d.Validate()
		}
		if err != nil {
			s.add(FindMalformed, f.Path, num, "%v", err)
			return
		}
		f.origin(d.Source, d.License)
		s.dialogue(f, d, num)
		return
	}
	var p rl.Problem
	err := decode(line, &p)
	if err == nil {
		err = checkProblem(&p)
	}
	if err != nil {
		s.add(FindMalformed, f.Path, num, "%v", err)
		return
	}
	f.origin(p.Source, p.License)
	s.problem(f, p, num)
}

func (f *Surveyed) origin(source, license string) {
	f.Rows++
	if source == "" {
		source = "no stated source"
	}
	if license == "" {
		license = "unknown"
	}
	f.Origins[source+" ("+license+")"]++
}

func (s *Survey) problem(f *Surveyed, p rl.Problem, num int) {
	at := fmt.Sprintf("%s:%d", f.Path, num)
	if first, twice := s.ids[p.ID]; twice {
		s.add(FindMalformed, f.Path, num, "id %.40q is in %s already", p.ID, first)
		return
	}
	s.ids[p.ID] = at
	key := ProblemKey(p)
	if name, held := s.opts.Against.find(key); held {
		s.add(FindHeldOut, f.Path, num, "problem %.40q is %s", p.ID, name)
		return
	}
	if first, twice := s.seen[key]; twice {
		s.add(FindDuplicate, f.Path, num, "problem %.40q is that of %s", p.ID, first)
		return
	}
	s.seen[key] = at
	if s.opts.Format == nil {
		return
	}
	t, err := s.opts.Format.Begin(p.Prompt)
	if err != nil {
		s.add(FindMisfit, f.Path, num, "%v", err)
		return
	}
	s.length(f, num, t.PromptTokens())
}

func (s *Survey) length(f *Surveyed, num, tokens int) {
	f.LongestTokens = max(f.LongestTokens, tokens)
	if s.opts.MaxTokens > 0 && tokens > s.opts.MaxTokens {
		s.add(FindTooLong, f.Path, num, "%d tokens, at most %d", tokens, s.opts.MaxTokens)
	}
}

func (s *Survey) dialogue(f *Surveyed, d chat.Dialogue, num int) {
	if len(d.Tools) > 0 {
		f.OwnTools++
		f.Tools += len(d.Tools)
	}
	if s.opts.Format == nil {
		return
	}
	d, changed := s.opts.Format.Fit(d)
	t, err := s.opts.Format.Render(d)
	if err != nil {
		s.add(FindMisfit, f.Path, num, "%v", err)
		return
	}
	if changed {
		f.Fitted++
	}
	s.length(f, num, len(t.Tokens()))
}

// HeldOut are problems that must not be trained on.
type HeldOut struct {
	names map[Key]string
}

// ProblemKey is the same for problems that ask the same: by Normalize of the prompt, with
// environment and fixture, on which the answer may depend.
func ProblemKey(p rl.Problem) Key {
	if p.Fixture == "" {
		return KeyOf(p.Prompt)
	}
	return KeyOf(p.Prompt, p.Env, p.Fixture)
}

// Add adds a problem under a name.
func (h *HeldOut) Add(name string, p rl.Problem) {
	if h.names == nil {
		h.names = map[Key]string{}
	}
	h.names[ProblemKey(p)] = name
}

// Find returns the name of the held-out problem that p is.
func (h *HeldOut) Find(p rl.Problem) (name string, found bool) { return h.find(ProblemKey(p)) }

func (h *HeldOut) find(key Key) (name string, found bool) {
	if h == nil {
		return "", false
	}
	name, found = h.names[key]
	return name, found
}

// ReadHeldOut reads files of problems; nil for no files.
func ReadHeldOut(paths []string) (*HeldOut, error) {
	if len(paths) == 0 {
		return nil, nil //nolint:nilnil // nothing is held out
	}
	h := &HeldOut{}
	for _, path := range paths {
		problems, err := readFile(path, ReadProblems)
		if err != nil {
			return nil, err
		}
		for _, p := range problems {
			h.Add(path+", problem "+p.ID, p)
		}
	}
	return h, nil
}
