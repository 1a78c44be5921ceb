package sandboxbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"temper/tools/bench/loadgen"
)

// maxTries bounds how often a call is sent that gets no outcome of its program.
const maxTries = 10

// play makes the calls of a unit for one tenant.
func (s *tenants) play(ctx context.Context, t tenantTargets, u unit) {
	calls := make([]loadgen.Call, len(u.calls))
	for i := range calls {
		calls[i] = u.call(t.name, s.leg, i)
	}
	if u.kind == unitBatch {
		s.send(ctx, t.batch, calls)
		return
	}
	for i := range calls { // the cells of a session one after the other
		s.send(ctx, t.stream, calls[i:i+1])
	}
	if name := calls[0].Session; name != "" {
		s.leave(ctx, session{t.name, name}, u.number)
	}
}

// leave closes every other session at once; the rest stays until the end, unless the
// service needs its place.
func (s *tenants) leave(ctx context.Context, o session, number int) {
	if number%2 == 0 {
		if ended, err := s.cfg.CloseSession(ctx, o.run, o.name); err == nil && ended {
			return
		}
	}
	s.mu.Lock()
	s.open = append(s.open, o)
	s.mu.Unlock()
}

// send makes one exchange, and others for calls without an outcome of their program.
func (s *tenants) send(ctx context.Context, target loadgen.Target, calls []loadgen.Call) {
	start := time.Now()
	for try := 1; len(calls) > 0; try++ {
		attempt, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		outcomes := target.Do(attempt, calls)
		cancel()
		var again []loadgen.Call
		pause := s.cfg.Pause * time.Duration(try)
		for i, o := range outcomes {
			switch {
			case o.Class != loadgen.Lost:
				s.judge(calls[i], o, time.Since(start))
			case try < maxTries || o.Kind == loadgen.KindRefused && time.Since(start) < s.cfg.Timeout:
				s.mu.Lock()
				s.report.Retried[o.Kind]++
				s.mu.Unlock()
				again, pause = append(again, calls[i]), max(pause, o.RetryAfter)
			default:
				s.fail(&s.report.Lost, describe(calls[i], o))
			}
		}
		if calls = again; len(calls) > 0 {
			loadgen.Rest(ctx, pause)
		}
	}
}

// judge notes the answer to a call.
func (s *tenants) judge(call loadgen.Call, o loadgen.Outcome, took time.Duration) {
	if call.Program.AnyEnd {
		s.mu.Lock()
		s.report.Ends[string(o.Status)]++
		s.mu.Unlock()
		if o.Class == loadgen.Wrong { // the answer to another call
			s.fail(&s.report.Wrong, describe(call, o))
		}
		return
	}
	s.mu.Lock()
	s.took = append(s.took, took)
	if took > s.report.Slowest {
		s.report.Slowest, s.report.SlowestCall = took, describe(call, o)
	}
	s.mu.Unlock()
	switch {
	case o.Class == loadgen.Good:
	case strings.HasPrefix(o.Kind, "status_"):
		s.fail(&s.report.Blamed, describe(call, o))
	default:
		s.fail(&s.report.Wrong, describe(call, o))
	}
}

func describe(call loadgen.Call, o loadgen.Outcome) string {
	text := fmt.Sprintf("%s of %s, %s", call.ID, call.Run, call.Program.Name)
	if call.Session != "" {
		text += " in session " + call.Session
	}
	if o.Kind != "" {
		text += ": " + o.Kind + ": " + o.Detail
	}
	return text
}
