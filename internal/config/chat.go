package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
)

// Chat templates by name; see Rollout.ChatTemplate.
const (
	TemplateCheckpoint     = "checkpoint"
	TemplateRStar2         = chat.FormatRStar2
	TemplateRStar2Released = chat.FormatRStar2Released
)

// templateEnding marks the name of a file.
const templateEnding = ".jinja"

// Places of the answer; see Rollout.Answer.
const (
	AnswerTag      = "tag"
	AnswerBoxed    = "boxed"
	AnswerInteger  = "integer"
	AnswerReleased = "released"
)

// variable is the form of names in a template.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// TemplateFile reports whether ChatTemplate names a file.
func (r Rollout) TemplateFile() bool {
	return filepath.Ext(r.ChatTemplate) == templateEnding
}

// Boxed reports whether answers stand in \boxed{}.
func (r Rollout) Boxed() bool {
	if r.Answer == "" {
		return r.ChatTemplate == TemplateRStar2 || r.ChatTemplate == TemplateRStar2Released
	}
	return r.Answer == AnswerBoxed
}

// AnswerMode is how answers are found and compared, as package verify names it.
func (r Rollout) AnswerMode() string {
	switch {
	case r.Boxed():
		return "paper"
	case r.Answer == AnswerInteger, r.Answer == AnswerReleased:
		return r.Answer
	default:
		return AnswerTag
	}
}

// chat checks how a run writes its prompts.
func (c *checker) chat(r Rollout, m Model) {
	names := []string{TemplateCheckpoint, TemplateRStar2, TemplateRStar2Released}
	switch {
	case r.ChatTemplate == "" || r.TemplateFile():
	case !slices.Contains(names, r.ChatTemplate):
		c.add("rollout.chat_template", "is %q, want one of %s, or a file ending in %s", r.ChatTemplate, strings.Join(names, ", "), templateEnding)
	case r.ChatTemplate == TemplateCheckpoint && !m.Starts():
		c.add("rollout.chat_template", "is %s, but model.path and model.run are empty: name a checkpoint that has one, or another template", TemplateCheckpoint)
	}
	for _, name := range slices.Sorted(maps.Keys(r.TemplateVars)) {
		path := "rollout.template_vars." + name
		switch {
		case r.ChatTemplate == "":
			c.add(path, "is set, but rollout.chat_template is empty: the small ChatML has no variables")
		case !variable.MatchString(name):
			c.add(path, "is no name of a variable: want letters, digits and _")
		case slices.Contains([]string{"messages", "tools", "add_generation_prompt"}, name):
			c.add(path, "is set by the rollout: choose another name")
		}
	}
	for i := range r.Tools {
		if problem := r.toolProblem(i); problem != "" {
			c.add(fmt.Sprintf("rollout.tools[%d]", i), "%s", problem)
		}
	}
}

// toolProblem reports what is wrong with the i-th tool; empty when nothing is.
func (r Rollout) toolProblem(i int) string {
	known := append(builtin.Names(), chat.NoTools)
	t := r.Tools[i]
	same := func(other Tool) bool { return other.Name == t.Name }
	switch {
	case slices.ContainsFunc(r.Tools[:i], same):
		return fmt.Sprintf("%q is used twice", t.Name)
	case t.Options.Path != "":
		return t.fileProblem(known)
	case t.Name == chat.NoTools && len(r.Tools) > 1:
		return fmt.Sprintf("is %s beside other tools", chat.NoTools)
	case t.Name == chat.NoTools && t.Options != ToolOptions{}:
		return fmt.Sprintf("is %s and has options", chat.NoTools)
	case t.Options.Session && slices.Contains(known, t.Name) && !builtin.IsProgram(t.Name):
		return fmt.Sprintf("is %s with session: its calls share nothing", t.Name)
	case r.ChatTemplate == "" && t.Name != builtin.Python && (t.Name == chat.NoTools || builtin.IsProgram(t.Name)):
		return fmt.Sprintf("is %s, but without rollout.chat_template there is %s alone beside files and the tools that run no program", t.Name, builtin.Python)
	}
	return ""
}

// fileProblem reports what is wrong with a tool that is a file, as far as the file is not
// needed for it.
func (t Tool) fileProblem(known []string) string {
	switch {
	case slices.Contains(known, t.Name):
		return fmt.Sprintf("is the file %s under the name of a tool of Temper: choose another", t.Options.Path)
	case filepath.Ext(t.Options.Path) != pythonEnding:
		return fmt.Sprintf("has the path %q, want a file ending in %s", t.Options.Path, pythonEnding)
	case t.Options.Session:
		return "is a file with session: each call of a function is a process of its own"
	}
	return ""
}
