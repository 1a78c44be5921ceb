package sampling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"temper/internal/series"
	"temper/sandbox"
)

// Progress is how far a call has come. People look at it, and a watch ends a call
// that does not move. It may be read while the call runs.
type Progress struct {
	groups  atomic.Int64
	trouble *atomic.Pointer[string] // of the service's sandbox
}

// NewProgress makes the progress of one call.
func (r *Service) NewProgress() *Progress { return &Progress{trouble: &r.trouble} }

// String says in one line how far the call is, or what it waits for.
func (p *Progress) String() string {
	if trouble := p.trouble.Load(); trouble != nil {
		return troublePrefix + *trouble
	}
	return fmt.Sprintf("%d groups finished", p.groups.Load())
}

// troublePrefix marks the progress of a call whose sandbox does not answer.
const troublePrefix = "waiting for the sandbox: "

// TroubleIn returns what a call waits for according to its progress, "" when it
// waits for nothing.
func TroubleIn(progress string) string {
	trouble, ok := strings.CutPrefix(progress, troublePrefix)
	if !ok {
		return ""
	}
	return trouble
}

// watchedExecutor remembers why the sandbox cannot be reached. Rollouts wait for more
// than a minute before they give up, and a person wants to know why.
type watchedExecutor struct {
	sandbox.Executor
	trouble *atomic.Pointer[string] // nil when the last call went through
	// programs counts the processor time of what ran, in nanoseconds.
	programs *atomic.Int64
}

// Execute implements sandbox.Executor.
func (w watchedExecutor) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := w.Executor.Execute(ctx, req)
	switch {
	case err == nil:
		w.programs.Add(int64(res.Usage.CPU))
		w.trouble.Store(nil)
	case errors.Is(err, sandbox.ErrUnavailable):
		text := err.Error()
		w.trouble.Store(&text)
	}
	return res, err
}

// passCounter is an engine that counts its passes by the number of requests that each of
// them served, since its start.
type passCounter interface{ PassesByRows() []int64 }

// passesOf reads the counts of an engine; nil of one that does not count.
func passesOf(e Engine) []int64 {
	if c, ok := e.(passCounter); ok {
		return c.PassesByRows()
	}
	return nil
}

// passesSince are the passes of an engine after those before.
func passesSince(before []int64, e Engine) []int64 {
	now := passesOf(e)
	for i := range min(len(before), len(now)) {
		now[i] -= before[i]
	}
	for len(now) > 0 && now[len(now)-1] == 0 {
		now = now[:len(now)-1]
	}
	return now
}

// busy is what only the sampling itself knows of its time.
type busy struct {
	programs int64
	passes   []int64
}

// with adds it to what the machine has measured; nil where nobody measured.
func (b busy) with(m *series.Busy) []series.Busy {
	if m == nil {
		return nil
	}
	m.Programs, m.Passes = time.Duration(b.programs), b.passes
	return []series.Busy{*m}
}
