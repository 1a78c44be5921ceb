package tool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox"
)

// Bounds of a session. Nodes and gateways have bounds of their own, and these are the
// smaller ones, so that a trajectory does not depend on who answers its calls.
const (
	maxSessionCalls = 256
	maxSessionBytes = 1 << 20
)

// ErrMoved marks the loss of a session that continues under another name: the call can be
// made again.
var ErrMoved = errors.New("the session is made again")

// Session is the session of one trajectory: its calls run as cells of one Python
// process. It keeps the cells that left a trace and sends them with each call. From
// them the sandbox can make the process again after it died, was evicted or moved to
// another node, and it drops a process that an earlier attempt left behind.
type Session struct {
	name  string
	code  []string
	stdin []string
	took  []time.Duration // the larger of wall and processor time of each cell
	bytes int
	used  bool // a cell was sent
	moved bool // to another name, since the first was lost
	// mark is a hash of the cells. The result of a call depends on them.
	mark uint64
}

// NewSession returns the session of a trajectory, without a cell so far.
func NewSession(trajectory string) *Session {
	// A hash, because the name of a session is limited in length. Two trajectories with
	// one hash still get the right results, because each call states its cells.
	return &Session{name: strconv.FormatUint(rl.Hash(trajectory), 16), code: []string{}, stdin: []string{}}
}

// Cell is a call that left a trace in its session.
type Cell struct {
	Code  string        `json:"code"`
	Stdin string        `json:"stdin,omitempty"`
	Took  time.Duration `json:"took_ns,omitempty"`
}

// Cells are the calls that left a trace, in order.
func (k *Session) Cells() []Cell {
	out := make([]Cell, len(k.code))
	for i := range out {
		out[i] = Cell{Code: k.code[i], Stdin: k.stdin[i], Took: k.took[i]}
	}
	return out
}

// Restore makes a new session continue after the cells of an earlier one. The sandbox runs
// them again at the next call.
func (k *Session) Restore(cells []Cell) {
	for _, c := range cells {
		k.add(c)
	}
}

// add adds a cell that left a trace.
func (k *Session) add(c Cell) {
	k.code, k.stdin, k.took = append(k.code, c.Code), append(k.stdin, c.Stdin), append(k.took, c.Took)
	k.bytes += len(c.Code) + len(c.Stdin)
	k.mark = rl.Seed(k.mark, "cell", rl.Hash(c.Code), rl.Hash(c.Stdin))
}

// refusal reports why the call cannot be the next cell; empty when it can.
func (k *Session) refusal(p builtin.Program) string {
	switch {
	case len(k.code) >= maxSessionCalls:
		return fmt.Sprintf("the session has run %d calls, the limit", len(k.code))
	case k.bytes+len(p.Code)+len(p.Input) > maxSessionBytes:
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
	req.History, req.HistoryStdin, req.HistoryTimes = k.code, k.stdin, k.took
	cells := len(k.code)
	req.SessionCells = &cells
}

// move gives the session another name when the sandbox has lost it, so that another try
// makes it from its cells, perhaps on another node. It reports false the second time: the
// cells cannot be run again, which is a failure of the sandbox and not of a program.
func (k *Session) move() bool {
	if k.moved {
		return false
	}
	k.moved = true
	k.name += "-2"
	return true
}

// recordCell adds a cell that was answered, unless it left no trace: it was stopped,
// or ended the process itself.
func (k *Session) recordCell(req sandbox.Request, res sandbox.Result) {
	if res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	k.add(Cell{Code: req.Code, Stdin: req.Stdin, Took: max(res.Usage.Wall, res.Usage.CPU)})
}

// Close ends the session in the sandbox, if it was used.
func (k *Session) Close(ctx context.Context, closer sandbox.SessionCloser, run string) error {
	if !k.used || closer == nil {
		return nil
	}
	_, err := closer.CloseSession(ctx, run, k.name)
	return err
}
