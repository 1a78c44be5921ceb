package run

import (
	"context"
	"fmt"
	"path"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/trainer/hf"
)

// chatConfig is what a run says of its conversations; tmpl is nil for the small ChatML.
func chatConfig(cfg config.Run, tmpl *chat.Template) chat.Config {
	r := cfg.Rollout
	return chat.Config{
		Template: tmpl, Vars: r.TemplateVars, Tools: r.Tools.Names(), SessionTools: r.Tools.WithSession(), Boxed: r.Boxed(), SystemPrompt: r.SystemPrompt, ToolsInPrompt: r.ToolsInPrompt,
	}
}

// findTemplate reads the chat template that a configuration names, from where it
// says; nil for the small ChatML. files are those of the checkpoint that the run
// starts from, and from where they are.
func findTemplate(cfg config.Run, from string, files map[string][]byte) (*chat.Template, error) {
	name := cfg.Rollout.ChatTemplate
	withTools := len(cfg.Rollout.Tools) != 1 || cfg.Rollout.Tools[0].Name != chat.NoTools
	switch {
	case name == "":
		return nil, nil //nolint:nilnil // the small ChatML has no template
	case cfg.Rollout.TemplateFile():
		return chat.ReadTemplate(name)
	case name == config.TemplateCheckpoint:
		return chat.CheckpointTemplate(from, files, "", withTools)
	default:
		return chat.Builtin(name)
	}
}

// templateProblem is a fault of the template that the configuration names.
func templateProblem(err error) config.Problem {
	return config.Problem{Path: "rollout.chat_template", Msg: err.Error()}
}

// checkChat finds out whether rollouts can use the template of a run that starts
// from random weights. Its tokenizer does not exist yet: one of bytes has the same
// control tokens.
func checkChat(cfg config.Run) error {
	tmpl, err := findTemplate(cfg, "", nil)
	if err == nil {
		_, err = chat.NewPlain(chatConfig(cfg, tmpl))
	}
	if err != nil {
		return config.Problems{templateProblem(err)}
	}
	return nil
}

// templateKey is where a run keeps its template: a run does not depend on the file
// that it came from, nor on the built-in ones of this binary.
func templateKey(layout artifact.Layout) string {
	return path.Join(layout.Dir(), "chat_template.json")
}

func storeTemplate(ctx context.Context, store blob.Store, layout artifact.Layout, tmpl *chat.Template) error {
	if tmpl == nil {
		return nil
	}
	data, err := tmpl.Marshal()
	if err != nil {
		return fmt.Errorf("encode chat template: %w", err)
	}
	_, err = blob.PutBytes(ctx, store, templateKey(layout), data, blob.Always)
	return err
}

// readTemplate reads the stored template of a run; nil for the small ChatML.
func readTemplate(ctx context.Context, store blob.Store, layout artifact.Layout, cfg config.Run) (*chat.Template, error) {
	if cfg.Rollout.ChatTemplate == "" {
		return nil, nil //nolint:nilnil // the small ChatML has no template
	}
	data, err := blob.ReadKey(ctx, store, templateKey(layout))
	if err != nil {
		return nil, fmt.Errorf("chat template of run %s: %w", layout.RunID, err)
	}
	return chat.UnmarshalTemplate(data)
}

// addTemplate gives each published policy the template that it was trained
// with, where its start does not bring it.
func (r *Loaded) addTemplate(tmpl *chat.Template) {
	if tmpl == nil || r.Config.Rollout.ChatTemplate == config.TemplateCheckpoint {
		return
	}
	if r.Files == nil {
		r.Files = map[string][]byte{}
	}
	r.Files[hf.TemplateFile] = []byte(tmpl.Source())
}

// adaptDialogues writes generated dialogues in the words of the run's format. Those
// of a file stay as they are.
func adaptDialogues(cfg config.Run, format *chat.Format, dialogues []chat.Dialogue) {
	if cfg.SFT.Data.Path != "" {
		return
	}
	for i, d := range dialogues {
		dialogues[i] = format.Adapt(d)
	}
}
