package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/internal/fault"
	"temper/internal/tool/pyfile"
	"temper/sandbox"
)

// probeEnd follows the text of the file.
//
//go:embed probe.py
var probeEnd string

// Probe is a question to the sandbox: can the file be imported there, and does it have
// the functions that its text declares?
type Probe struct {
	// Key is the key of the configuration that names the file.
	Key    string
	Source pyfile.Source
	Names  []string
	// Run is the key of fairness.
	Run    string
	Limits sandbox.Limits
}

// probeWait is the pause where an overloaded executor gives no advice.
const probeWait = time.Second

// Ask imports the file in the sandbox. When the file is at fault, the error is of kind
// UserCode with file and line; an error of the executor is safe to retry.
func (p Probe) Ask(ctx context.Context, e sandbox.Executor) error {
	names, err := json.Marshal(p.Names)
	if err != nil {
		return err
	}
	req := sandbox.Request{
		ID: fmt.Sprintf("%s/probe/%s/%.16s", p.Run, p.Key, p.Source.SHA256), Run: p.Run,
		Code: p.Source.Program(probeEnd), Fixture: p.Source.Silence(""), Stdin: string(names), Limits: p.Limits,
	}
	res, err := e.Execute(ctx, req)
	for errors.Is(err, sandbox.ErrOverloaded) {
		timer := time.NewTimer(sandbox.RetryAfter(err, probeWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		res, err = e.Execute(ctx, req)
	}
	if err != nil {
		return fmt.Errorf("probe of %s: %w", p.Source.Path, err)
	}
	if !res.Status.OfProgram() {
		return fmt.Errorf("probe of %s: %w: %s", p.Source.Path, sandbox.ErrUnavailable, res.Reason)
	}
	return p.judge(res)
}

// judge reports what the result means for the file.
func (p Probe) judge(res sandbox.Result) error {
	bad := func(line int, format string, args ...any) error {
		text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
		return fault.Newf(fault.UserCode, "%s: %s: cannot be imported in the sandbox: %s", p.Key, p.Source.Place(line), text)
	}
	switch {
	case res.Error != nil:
		return bad(res.Error.Line, "%s: %s", res.Error.Type, res.Error.Message)
	case res.Status == sandbox.StatusTimeLimit:
		return bad(0, "it does not end: %s", res.Reason)
	case res.Status != sandbox.StatusOK:
		return bad(0, "%s %s", res.Status, res.Reason)
	}
	var missing []string
	if json.Unmarshal([]byte(strings.TrimSpace(res.Stdout)), &missing) != nil {
		return bad(0, "it ends or reads standard input while it is imported")
	}
	if len(missing) > 0 {
		return bad(0, "%s is no function once the file has run", strings.Join(missing, ", "))
	}
	return nil
}
