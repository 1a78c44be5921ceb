package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"temper/internal/chat"
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
	AnswerTag   = "tag"
	AnswerBoxed = "boxed"
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
	known := append(chat.RolloutTools(), chat.NoTools)
	tools := r.Tools.Names()
	for i, name := range tools {
		path := fmt.Sprintf("rollout.tools[%d]", i)
		switch {
		case slices.Contains(tools[:i], name):
			c.add(path, "%q is used twice", name)
		case name == chat.NoTools && len(tools) > 1:
			c.add(path, "is %s beside other tools", chat.NoTools)
		case name == chat.NoTools && r.Tools[i].Options != ToolOptions{}:
			c.add(path, "is %s and has options", chat.NoTools)
		case r.ChatTemplate == "" && name != chat.ToolName && slices.Contains(known, name):
			c.add(path, "is %s, but without rollout.chat_template there is %s, and nothing else", name, chat.ToolName)
		}
	}
}
