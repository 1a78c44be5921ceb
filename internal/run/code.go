package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/reward"
	"temper/internal/tool"
)

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
