package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/nomad"
)

// followPace is how often a follower looks for instances that began or ended.
const followPace = 2 * time.Second

// follower writes the lines of the logs of instances as they come, including instances that
// begin later, and reports which instances began and ended. It continues when a log cannot
// be read.
type follower struct {
	logs   logReader
	ids    []string
	out    *sharedOut
	known  map[string]*followed // by instance and task
	open   int
	ended  chan *followed
	failed error // first error
	read   bool  // at least one log could be read
	silent bool  // a failed listing has been reported
}

// followed is a log that is or was followed.
type followed struct {
	stream
	stop  context.CancelFunc
	dying bool // its task had ended at the last look
	err   error
}

func newFollower(l logReader, ids []string, out io.Writer) *follower {
	return &follower{logs: l, ids: ids, out: &sharedOut{out: out}, known: map[string]*followed{}, ended: make(chan *followed)}
}

// run follows the logs until the context ends, or no log can be read, or the jobs are
// stopped and their instances have ended.
func (f *follower) run(ctx context.Context, allocs []*api.AllocationListStub) error {
	defer f.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.out.several = len(streamsOf(allocs)) > 1
	f.begin(ctx, allocs, true)
	look := time.NewTicker(followPace)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-f.ended:
			f.end(ctx, s)
			if f.open == 0 && !f.read && f.failed != nil {
				return f.failed
			}
		case <-look.C:
			if f.look(ctx); f.open == 0 && f.over(ctx) {
				return nil
			}
		}
	}
}

// wait waits for the ends of all open logs after the context has ended.
func (f *follower) wait() {
	for ; f.open > 0; f.open-- {
		<-f.ended
	}
}

// begin follows the logs that are not followed yet. A task that has not begun has none.
func (f *follower) begin(ctx context.Context, allocs []*api.AllocationListStub, first bool) {
	for _, s := range streamsOf(allocs) {
		key := s.ID + "/" + s.task
		if f.known[key] != nil || s.TaskStates[s.task].State == taskPending {
			continue
		}
		if !first {
			f.out.say("==> %s begins", s)
		}
		ended := s.over()
		one := &followed{stream: s, dying: ended}
		f.known[key], f.open = one, f.open+1
		var reading context.Context
		reading, one.stop = context.WithCancel(ctx)
		go func() {
			w := &lines{to: f.out, prefix: s.String() + " | "}
			one.err = f.logs.copy(reading, s, !ended, w)
			if one.err != nil && !ended && f.isGone(reading, s) {
				one.err = nil // a node removes the logs of ended instances while they are read
			}
			if one.err != nil {
				_, _ = fmt.Fprintf(w, "%v\n", one.err) // the output holds all messages
			}
			w.flush()
			f.ended <- one
		}()
	}
}

// isGone reports whether an instance that was alive has ended meanwhile.
func (f *follower) isGone(ctx context.Context, s stream) bool {
	alloc, _, err := f.logs.nomad.Allocations().Info(s.ID, nomad.Query(ctx))
	if err != nil {
		return errors.Is(f.logs.nomad.Fail("read allocation "+s.ID, err), nomad.ErrNotExist)
	}
	return alloc.ClientTerminalStatus() || alloc.DesiredStatus == api.AllocDesiredStatusStop
}

// end records that a log is no longer followed.
func (f *follower) end(ctx context.Context, s *followed) {
	s.stop()
	f.open--
	if s.err == nil {
		f.read = true
	} else if f.failed == nil {
		f.failed = s.err
	}
	if s.err == nil && ctx.Err() == nil {
		f.out.say("==> %s has ended", s)
	}
}

// look finds instances that began or ended. It reads a log for one more pace after its task
// has ended, since its last lines may come late.
func (f *follower) look(ctx context.Context) {
	allocs, err := f.logs.allocations(ctx, f.ids)
	if err != nil {
		if ctx.Err() == nil && !f.silent {
			f.out.say("==> instances that begin are not seen for now: %v", err)
		}
		f.silent = true
		return
	}
	f.silent = false
	now := map[string]*api.AllocationListStub{}
	for _, a := range allocs {
		now[a.ID] = a
	}
	for _, s := range f.known {
		if a := now[s.ID]; a != nil && !(stream{a, s.task}).over() {
			continue
		}
		if s.dying {
			s.stop()
		}
		s.dying = true
	}
	f.begin(ctx, allocs, false)
}

// over reports whether no further instance will come.
func (f *follower) over(ctx context.Context) bool {
	for _, id := range f.ids {
		job, _, err := f.logs.nomad.Jobs().Info(id, nomad.Query(ctx))
		if err == nil && (job.Stop == nil || !*job.Stop) {
			return false
		}
		if err = f.logs.nomad.Fail("read job "+id, err); err != nil && !errors.Is(err, nomad.ErrNotExist) {
			return false
		}
	}
	return true
}

// taskPending and taskDead are states of tasks in Nomad.
const (
	taskPending = "pending"
	taskDead    = "dead"
)

// over reports whether a log is complete.
func (s stream) over() bool {
	switch s.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return s.TaskStates[s.task] != nil && s.TaskStates[s.task].State == taskDead
}

// sharedOut is an output of several logs.
type sharedOut struct {
	turn sync.Mutex
	out  io.Writer
	// several is set once there is more than one: then lines begin with names.
	several bool
}

// say writes a line of the follower itself; after it, lines of logs begin with names.
func (o *sharedOut) say(format string, args ...any) {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.several = true
	_, _ = fmt.Fprintf(o.out, format+"\n", args...) // a log notices a closed output
}

// longestLine bounds the part of a line that is written before its end arrives.
const longestLine = 64 << 10

// lines writes one log among others: whole lines, each behind a prefix.
type lines struct {
	to     *sharedOut
	prefix string
	rest   []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < longestLine {
			return len(p), nil
		}
		line := l.rest
		if end >= 0 {
			line = l.rest[:end]
		}
		if err := l.writeLine(line); err != nil {
			return 0, err
		}
		l.rest = l.rest[min(len(line)+1, len(l.rest)):]
	}
}

// flush writes an incomplete line.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		_ = l.writeLine(l.rest) // the output may be closed
		l.rest = nil
	}
}

func (l *lines) writeLine(line []byte) error {
	l.to.turn.Lock()
	defer l.to.turn.Unlock()
	prefix := l.prefix
	if !l.to.several {
		prefix = ""
	}
	_, err := fmt.Fprintf(l.to.out, "%s%s\n", prefix, line)
	return err
}
