package setup

import (
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/run"
)

// findTemplate reads the chat template that a configuration names; nil for the small
// ChatML. files are the files of the checkpoint that the run starts from, and from names
// their folder.
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
func checkChat(cfg config.Run, functions []chat.FunctionTool) error {
	tmpl, err := findTemplate(cfg, "", nil)
	if err == nil {
		_, err = chat.NewPlain(run.ChatConfig(cfg, tmpl, functions))
	}
	if err != nil {
		return config.Problems{templateProblem(err)}
	}
	return nil
}

// OpenFormat returns the chat format of a run with its tools. A run from random weights
// learns its tokenizer from its dialogues: the format has one of bytes then. Errors:
// config.Problems; those of a store.
func OpenFormat(ctx context.Context, store blob.Store, cfg config.Run) (*chat.Format, error) {
	code, err := findCode(cfg)
	if err != nil {
		return nil, err
	}
	if !cfg.Model.Starts() {
		tmpl, err := findTemplate(cfg, "", nil)
		if err != nil {
			return nil, config.Problems{templateProblem(err)}
		}
		return chat.NewPlain(run.ChatConfig(cfg, tmpl, code.Functions()))
	}
	s, err := openStart(ctx, store, cfg, code.Functions())
	if err != nil {
		return nil, err
	}
	return s.format, s.Close()
}

func (p *preparation) storeTemplate(ctx context.Context) error {
	if p.template == nil {
		return nil
	}
	data, err := p.template.Marshal()
	if err != nil {
		return fmt.Errorf("encode chat template: %w", err)
	}
	return p.keep(blob.PutBytes(ctx, p.store, run.TemplateKey(p.layout), data, blob.Always))
}
