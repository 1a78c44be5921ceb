package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sync"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/config"
	"temper/internal/reward"
	"temper/internal/run/artifact"
	"temper/internal/tool"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
)

// Loaded is what a worker needs to know of a run, all of it immutable.
type Loaded struct {
	Ref    Ref
	Layout artifact.Layout
	Config config.Run
	Format *chat.Format
	Model  model.Config
	Code   Code
	// Start is where the weights come from; nil for random ones.
	Start *Start
	// TokenizerJSON and Files are published beside the weights.
	TokenizerJSON []byte
	Files         map[string][]byte
}

// Load reads a run whose data is prepared. Errors: InvalidConfig for a run of another format.
func Load(ctx context.Context, store blob.Store, run Ref) (*Loaded, error) {
	if _, _, err := ReadOpened(ctx, store, run.RunID); err != nil {
		return nil, err
	}
	cfg, err := ReadConfig(ctx, store, run)
	if err != nil {
		return nil, err
	}
	r := &Loaded{Ref: run, Layout: artifact.Layout{RunID: run.RunID}, Config: cfg}
	if r.TokenizerJSON, err = blob.ReadKey(ctx, store, r.Layout.Tokenizer()); err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tok, err := tokenizer.Parse(r.TokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tmpl, err := readTemplate(ctx, store, r.Layout, cfg)
	if err != nil {
		return nil, err
	}
	if r.Code, err = readCode(ctx, store, r.Layout, cfg); err != nil {
		return nil, err
	}
	if r.Format, err = chat.New(tok, ChatConfig(cfg, tmpl, r.Code.Functions())); err != nil {
		return nil, err
	}
	if err := r.readStart(ctx, store); err != nil {
		return nil, err
	}
	r.addTemplate(tmpl)
	return r, nil
}

// NumParameters counts the weights of the run's model.
func (r *Loaded) NumParameters() int64 { return int64(r.Model.NumParameters()) }

// Start is the checkpoint that a run starts from, as the run's store has it:
// from here on the run does not depend on the directory that it came from.
type Start struct {
	Model model.Config `json:"model"`
	// Policy is the weights, published in float32 like any policy of the run.
	Policy blob.Ref `json:"policy"`
	// Files are those that each policy of the run takes along, by name.
	Files map[string]blob.Ref `json:"files,omitempty"`
}

// readStart gives a run the architecture: that of the stored checkpoint which it
// starts from, or the one of its dimensions.
func (r *Loaded) readStart(ctx context.Context, store blob.Store) error {
	r.Model = model.OfRun(r.Config.Model, r.Format.Tokenizer().VocabSize())
	if !r.Config.Model.Starts() {
		return nil
	}
	ready, _, err := artifact.Lookup[Prepared](ctx, store, r.Layout.Data().Ready())
	if err == nil && ready.Start == nil {
		err = blob.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("start of run %s: %w", r.Ref.RunID, err)
	}
	r.Start, r.Model, r.Files = ready.Start, ready.Start.Model, map[string][]byte{}
	for name, ref := range ready.Start.Files {
		if r.Files[name], err = blob.ReadRef(ctx, store, ref); err != nil {
			return fmt.Errorf("start of run %s: %w", r.Ref.RunID, err)
		}
	}
	return nil
}

// ChatConfig is what a run says of its conversations; tmpl is nil for the small ChatML.
// functions are the run's own tools.
func ChatConfig(cfg config.Run, tmpl *chat.Template, functions []chat.FunctionTool) chat.Config {
	r := cfg.Rollout
	return chat.Config{
		Template: tmpl, Vars: r.TemplateVars, Tools: r.Tools.Names(), Functions: functions, SessionTools: r.Tools.WithSession(), Boxed: r.Boxed(), SystemPrompt: r.SystemPrompt, ToolsInPrompt: r.ToolsInPrompt,
	}
}

// TemplateKey is where a run keeps its template: a run does not depend on the file
// that it came from, nor on the built-in ones of this binary.
func TemplateKey(layout artifact.Layout) string {
	return path.Join(layout.Dir(), "chat_template.json")
}

// readTemplate reads the stored template of a run; nil for the small ChatML.
func readTemplate(ctx context.Context, store blob.Store, layout artifact.Layout, cfg config.Run) (*chat.Template, error) {
	if cfg.Rollout.ChatTemplate == "" {
		return nil, nil //nolint:nilnil // the small ChatML has no template
	}
	data, err := blob.ReadKey(ctx, store, TemplateKey(layout))
	if err != nil {
		return nil, fmt.Errorf("chat template of run %s: %w", layout.RunID, err)
	}
	return chat.UnmarshalTemplate(data)
}

// Code is the Python of the user's that a run calls. The run keeps the text: it does not
// depend on the files from the moment when its data is prepared.
type Code struct {
	// Tools are the files of rollout.tools, in order.
	Tools []tool.File `json:"tools,omitempty"`
	// Reward is the file of reward.path; nil for none.
	Reward *reward.File `json:"reward,omitempty"`
}

// HasCode reports whether a configuration names code of the user's.
func HasCode(cfg config.Run) bool { return cfg.Reward.Own() || len(cfg.Rollout.Tools.Files()) > 0 }

// Functions are the tools of all files.
func (c Code) Functions() []chat.FunctionTool { return tool.Functions(c.Tools) }

// CodeKey is where a run keeps its code. The opening manifest names it with its sum.
func CodeKey(layout artifact.Layout) string { return path.Join(layout.Dir(), "code.json") }

// readCode reads the stored code of a run; there is none where the configuration names
// none.
func readCode(ctx context.Context, store blob.Store, layout artifact.Layout, cfg config.Run) (Code, error) {
	var out Code
	if !HasCode(cfg) {
		return out, nil
	}
	data, err := blob.ReadKey(ctx, store, CodeKey(layout))
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("code of run %s: %w", layout.RunID, err)
	}
	return out, nil
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

// maxConfigs bounds the configurations that are kept.
const maxConfigs = 16

// Configs keeps the configurations of a few runs as they were read, by their content:
// reading one costs more than all else that a step's record needs. The zero value is
// ready, and may be used by several goroutines.
type Configs struct {
	mu    sync.Mutex
	byRef map[Ref]config.Run
}

// Read is ReadConfig. Callers must not change the maps, slices and pointers of the result.
func (c *Configs) Read(ctx context.Context, store blob.Store, run Ref) (config.Run, error) {
	c.mu.Lock()
	cfg, ok := c.byRef[run]
	c.mu.Unlock()
	if ok {
		return cfg, nil
	}
	cfg, err := ReadConfig(ctx, store, run)
	if err != nil {
		return cfg, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRef == nil || len(c.byRef) >= maxConfigs {
		c.byRef = map[Ref]config.Run{}
	}
	c.byRef[run] = cfg
	return cfg, nil
}
