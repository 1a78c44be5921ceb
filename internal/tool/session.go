package tool

import (
	"context"
	"fmt"
	"strconv"

	"temper/internal/chat"
	"temper/internal/rl"
	"temper/sandbox"
)

// Bounds of a session. Nodes and gateways have bounds of their own, and these are the
// smaller ones, so that a trajectory does not depend on who answers its calls.
const (
	maxSessionCalls = 256
	maxSessionBytes = 1 << 20
)

// Session is the session of one trajectory: its calls run as cells of one Python
// process. It keeps the cells that left a trace and sends them with each call. From
// them the sandbox can make the process again after it died, was evicted or moved to
// another node, and it drops a process that an earlier attempt left behind.
type Session struct {
	name  string
	code  []string
	stdin []string
	bytes int
	used  bool // a cell was sent
	// mark is a hash of the cells. The result of a call depends on them.
	mark uint64
}

// NewSession returns the session of a trajectory, without a cell so far.
func NewSession(trajectory string) *Session {
	// The name of a session is limited in length, that of a trajectory is not. Should
	// two have one hash, they still get the right results, because each call states
	// its cells.
	return &Session{name: strconv.FormatUint(rl.Hash(trajectory), 16), code: []string{}, stdin: []string{}}
}

// refusal says why the call cannot be the next cell; empty when it can.
func (k *Session) refusal(call chat.Call) string {
	switch {
	case len(k.code) >= maxSessionCalls:
		return fmt.Sprintf("the session has run %d calls, the limit", len(k.code))
	case k.bytes+len(call.Code)+len(call.Stdin) > maxSessionBytes:
		return fmt.Sprintf("the programs of the session are above the limit of %d bytes", maxSessionBytes)
	}
	return ""
}

// asCell makes req the next cell. It always asks for the interpreter with the numeric
// modules. Left to itself, the sandbox chooses by the imports of all cells that it
// knows, and would choose differently when it makes a process again.
func (k *Session) asCell(req *sandbox.Request) {
	k.used = true
	req.Session, req.Profile = k.name, sandbox.ProfileNumeric
	req.History, req.HistoryStdin = k.code, k.stdin
}

// recordCell adds a cell that was answered, unless it left no trace: it was stopped,
// or ended the process itself.
func (k *Session) recordCell(req sandbox.Request, res sandbox.Result) {
	if res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	k.code, k.stdin = append(k.code, req.Code), append(k.stdin, req.Stdin)
	k.bytes += len(req.Code) + len(req.Stdin)
	k.mark = rl.Seed(k.mark, "cell", rl.Hash(req.Code), rl.Hash(req.Stdin))
}

// Close ends the session in the sandbox, if it was used.
func (k *Session) Close(ctx context.Context, closer sandbox.SessionCloser, run string) error {
	if !k.used || closer == nil {
		return nil
	}
	_, err := closer.CloseSession(ctx, run, k.name)
	return err
}
