package rollout

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"temper/internal/rl"
	"temper/sandbox"
)

// Bounds of a session. They are those of a node and of a gateway, whichever is
// smaller, so that a trajectory does not depend on which of them answers it.
const (
	maxSessionCalls = 256
	maxSessionBytes = 1 << 20
)

// closePatience bounds how long a finished trajectory waits for the end of its kernel.
const closePatience = 2 * time.Second

// kernel is the session of one trajectory: its calls run as cells of one Python
// process. It keeps the cells that left a trace and sends them with each call, so
// that a process which died, was evicted or is on another node is made again from
// them, and what an earlier attempt at the trajectory left behind is dropped.
type kernel struct {
	name  string
	code  []string
	stdin []string
	bytes int
	used  bool // a cell was sent
	// mark is a hash of the cells: what a call of the session gives depends on them.
	mark uint64
}

func newKernel(trajectory string) *kernel {
	// Names of sessions are short, those of trajectories need not be. Two that share
	// a name share a process and stay apart by their cells.
	return &kernel{name: strconv.FormatUint(rl.Hash(trajectory), 16), code: []string{}, stdin: []string{}}
}

// refusal says why the call cannot be the next cell, "" when it can.
func (k *kernel) refusal(call rl.ToolCall) string {
	switch {
	case len(k.code) >= maxSessionCalls:
		return fmt.Sprintf("the session has run %d calls, the limit", len(k.code))
	case k.bytes+len(call.Code)+len(call.Stdin) > maxSessionBytes:
		return fmt.Sprintf("the programs of the session are above the limit of %d bytes", maxSessionBytes)
	}
	return ""
}

// addCellTo makes req the next cell. The interpreter has the numeric modules from the
// start, whatever the cells import: where a process is made again all cells are
// known at once, and a choice by their imports would not be the first one.
func (k *kernel) addCellTo(req *sandbox.Request) {
	k.used = true
	req.Session, req.Profile = k.name, sandbox.ProfileNumeric
	req.History, req.HistoryStdin = k.code, k.stdin
}

// recordCell adds a cell that was answered, unless it left no trace: it was stopped,
// or ended the process itself.
func (k *kernel) recordCell(req sandbox.Request, res sandbox.Result) {
	if res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	k.code, k.stdin = append(k.code, req.Code), append(k.stdin, req.Stdin)
	k.bytes += len(req.Code) + len(req.Stdin)
	k.mark = rl.Seed(k.mark, "cell", rl.Hash(req.Code), rl.Hash(req.Stdin))
}

// closeKernel ends the session of the trajectory, also when ctx is over. A process
// that cannot be reached ends by itself when it has been idle for long, so a failure
// is of no concern.
func (e *episode) closeKernel(ctx context.Context) {
	closer := e.runner.deps.Sessions
	if !e.kernel.used || closer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	_, _ = closer.CloseSession(ctx, e.spec.RunID, e.kernel.name)
}
