package setup

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/reward"
	"temper/internal/run"
	"temper/internal/tool"
	"temper/internal/tool/pyfile"
)

// findCode reads the Python files that a configuration names and finds all of their
// faults that show without running them. Whether they can be imported, the first
// worker with a sandbox finds out; see tool.Probe.
func findCode(cfg config.Run) (run.Code, error) {
	var out run.Code
	var problems config.Problems
	add := func(key, path string, found []pyfile.Problem) {
		for _, p := range found {
			problems = append(problems, config.Problem{Path: key, Msg: path + ": " + p.String()})
		}
	}
	owner := map[string]string{} // of a function: its file
	for i, t := range cfg.Rollout.Tools {
		if t.Options.Path == "" {
			continue
		}
		key := fmt.Sprintf("rollout.tools[%d]", i)
		f, found := readTools(t.Options.Path)
		add(key, t.Options.Path, found)
		for _, fn := range f.Functions {
			if before, twice := owner[fn.Name]; twice && before != f.Path {
				add(key, f.Path, []pyfile.Problem{{Msg: fmt.Sprintf("%s is a function of %s, too: a policy calls tools by name", fn.Name, before)}})
			}
			owner[fn.Name] = f.Path
		}
		out.Tools = append(out.Tools, f)
	}
	if cfg.Reward.Own() {
		data, problem := readSource(cfg.Reward.Path)
		if problem != nil {
			add("reward.path", cfg.Reward.Path, problem)
		} else {
			f, found := reward.NewFile(cfg.Reward.Path, data)
			add("reward.path", cfg.Reward.Path, found)
			out.Reward = &f
		}
	}
	return out, problems.Err()
}

func readTools(path string) (tool.File, []pyfile.Problem) {
	data, problem := readSource(path)
	if problem != nil {
		return tool.File{}, problem
	}
	return tool.NewFile(path, data)
}

// readSource reads a file up to a little more than it may have.
func readSource(path string) ([]byte, []pyfile.Problem) {
	f, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, []pyfile.Problem{{Msg: fmt.Sprintf("cannot be read: %v", err)}}
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err == nil && info.Size() > pyfile.MaxSource {
		return nil, []pyfile.Problem{{Msg: fmt.Sprintf("has %d bytes, above the limit of %d: it goes with each call", info.Size(), pyfile.MaxSource)}}
	}
	data, err := io.ReadAll(io.LimitReader(f, pyfile.MaxSource+1))
	if err != nil {
		return nil, []pyfile.Problem{{Msg: fmt.Sprintf("cannot be read: %v", err)}}
	}
	return data, nil
}

// storeCode stores the code for the workers, if there is some.
func (p *preparation) storeCode(ctx context.Context) error {
	if !run.HasCode(p.cfg) {
		return nil
	}
	ref, err := blob.PutJSON(ctx, p.store, run.CodeKey(p.layout), p.code, blob.Always)
	return p.keep(ref, err)
}

// inheritCode takes the code of the parent over: the same keys mean the same bytes, even if
// the files have changed since. It reads other keys anew.
func (p *preparation) inheritCode(ctx context.Context, parent config.Run, theirs run.Code) error {
	mine, err := theirs, error(nil)
	if !reflect.DeepEqual(p.cfg.Rollout.Tools, parent.Rollout.Tools) || p.cfg.Reward.Path != parent.Reward.Path {
		mine, err = findCode(p.cfg)
	}
	if err != nil {
		return err
	}
	p.code = mine
	return p.storeCode(ctx)
}
