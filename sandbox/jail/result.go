package jail

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// maxSource bounds the code, the fixture and the standard input of a request.
const maxSource = 1 << 20

// Refuse returns in one line why req, whose limits are complete, is not acceptable; empty
// when it is.
func (j *Jail) Refuse(req sandbox.Request) string {
	for _, part := range []struct {
		name string
		text string
	}{{"code", req.Code}, {"fixture", req.Fixture}, {"stdin", req.Stdin}} {
		if len(part.text) > maxSource {
			return fmt.Sprintf("%s of %d bytes is above the limit of %d", part.name, len(part.text), maxSource)
		}
	}
	switch req.Profile {
	case sandbox.ProfileAuto, sandbox.ProfileStrict, sandbox.ProfileNumeric:
	case sandbox.ProfileSubprocess:
		if why := j.refuseSpawn(req); why != "" {
			return why
		}
	default:
		return fmt.Sprintf("profile %.40q is none of %s, %s and %s", req.Profile, sandbox.ProfileStrict, sandbox.ProfileNumeric, sandbox.ProfileSubprocess)
	}
	most := j.cfg.Most
	for _, limit := range []struct {
		name      string
		got, most int64
	}{
		{"wall_ns", int64(req.Limits.Wall), int64(most.Wall)},
		{"cpu_ns", int64(req.Limits.CPU), int64(most.CPU)},
		{"memory_bytes", req.Limits.Memory, most.Memory},
		{"output_bytes", req.Limits.Output, most.Output},
	} {
		if limit.got < 0 || limit.got > limit.most {
			return fmt.Sprintf("limit %s %d is outside 0 to %d", limit.name, limit.got, limit.most)
		}
	}
	if got := req.Limits.Memory; got < LeastMemory {
		return fmt.Sprintf("limit memory_bytes %d is below the least of %d", got, LeastMemory)
	}
	return ""
}

// result builds the result of a dead program from its exit, its output and its record.
func (f *files) result(req sandbox.Request, e exit, stopped stop) (sandbox.Result, error) {
	f.collect()
	res := sandbox.Result{
		ID: req.ID, Stdout: f.out.text(), Stderr: f.err.text(),
		Usage: sandbox.Usage{Wall: e.wall, CPU: e.cpu, PeakMemory: e.peak},
	}
	left, err := readLeft(f.memory, f.recordAt)
	if err != nil {
		return sandbox.Result{}, err
	}
	switch {
	case f.out.flooded || f.err.flooded:
		res.Status = sandbox.StatusOutputLimit
		res.Reason = fmt.Sprintf("wrote more than %d bytes", f.out.bound)
		res.ExitCode = 128 + int(unix.SIGKILL)
	case stopped == stoppedByWall:
		res.Status = sandbox.StatusTimeLimit
		res.Reason = fmt.Sprintf("wall time limit of %v", req.Limits.Wall)
		res.ExitCode = 128 + int(unix.SIGKILL)
	case stopped == stoppedByCPU:
		cpuLimit(&res, req.Limits)
	case stopped == stoppedByMemory:
		res.Status = sandbox.StatusMemoryLimit
		res.Reason = fmt.Sprintf("its processes together hold more than %d bytes", req.Limits.Memory)
		res.ExitCode = 128 + int(unix.SIGKILL)
	case e.status.Signaled():
		signaled(&res, e, req.Limits)
	default:
		left.exited(&res, e.status.ExitStatus())
	}
	return res, nil
}

// left is the content that a child left in its memory file.
type left struct {
	stage  uint32
	record []byte // a message when stage is stageRefused
}

func readLeft(memory int, recordAt int64) (left, error) {
	head := make([]byte, headerSize)
	if _, err := unix.Pread(memory, head, 0); err != nil {
		return left{}, fmt.Errorf("read the memory file: %w", err)
	}
	l := left{stage: binary.LittleEndian.Uint32(head)}
	at, size := recordAt, 512
	if l.stage == stageRefused {
		at = 8
	}
	// Most records are short; a longer one needs a second read.
	for {
		l.record = make([]byte, size)
		if _, err := unix.Pread(memory, l.record, at); err != nil {
			return left{}, fmt.Errorf("read the memory file: %w", err)
		}
		if size == recordRoom || recordLength(l.record) <= size {
			return l, nil
		}
		size = recordRoom
	}
}

// signaled fills in the result of a program that died by a signal.
func signaled(res *sandbox.Result, e exit, limits sandbox.Limits) {
	sig := e.status.Signal()
	res.ExitCode = 128 + int(sig)
	switch {
	case sig == unix.SIGXCPU, sig == unix.SIGKILL && e.cpu >= limits.CPU && e.oom != deathByMemory:
		cpuLimit(res, limits)
	case sig == unix.SIGKILL && e.oom == deathByOthers:
		res.Status = sandbox.StatusKilled
		res.Reason = "killed by SIGKILL from outside of the sandbox"
	case sig == unix.SIGKILL:
		// The kernel does not count its kills here. No limit of the jail was reached, so
		// the kernel must have killed the program for lack of memory.
		res.Status = sandbox.StatusMemoryLimit
		res.Reason = "killed by the kernel, out of memory"
	default:
		res.Status = sandbox.StatusKilled
		res.Reason = "killed by " + unix.SignalName(sig)
	}
}

func cpuLimit(res *sandbox.Result, limits sandbox.Limits) {
	res.Status = sandbox.StatusTimeLimit
	res.Reason = fmt.Sprintf("cpu time limit of %v", limits.CPU)
	res.ExitCode = 128 + int(unix.SIGKILL)
}

// exited fills in the result of a program that ended by itself.
func (l left) exited(res *sandbox.Result, code int) {
	res.ExitCode = code
	if l.stage != stageEntered && l.stage != stageFixture {
		res.Status = sandbox.StatusInternal
		note, _, _ := strings.Cut(string(l.record), "\x00")
		res.Reason = strings.TrimSpace("the jail could not be entered " + strings.ToValidUTF8(note, "?"))
		return
	}
	r, err := parseRecord(l.record)
	ended := err == nil && r.ended // otherwise it called os._exit or overwrote its record
	if !ended && l.stage == stageFixture {
		res.Status = sandbox.StatusRefused
		res.Reason = fmt.Sprintf("fixture: ended the process with status %d", code)
		return
	}
	if !ended {
		res.Status = sandbox.StatusOK
		if code != 0 {
			res.Status = sandbox.StatusError
		}
		return
	}
	apply(res, r, l.stage == stageFixture)
}

// apply adds the record of a finished program to res. A record may report a failed fixture
// only if the program ended in its fixture.
func apply(res *sandbox.Result, r record, fixture bool) {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	res.Value = valid(r.value)
	if r.etype != "" {
		res.Error = &sandbox.PythonError{
			Type: valid(r.etype), Message: valid(r.emsg), Line: r.line, Source: valid(r.source),
		}
	}
	switch {
	case r.kind == kindFixture && fixture:
		res.Status = sandbox.StatusRefused
		res.Reason = "fixture: " + valid(r.emsg)
	case r.kind == kindMemory:
		res.Status = sandbox.StatusMemoryLimit
		res.Reason = "uncaught MemoryError"
	case r.code != 0:
		res.Status = sandbox.StatusError
	default:
		res.Status = sandbox.StatusOK
	}
}
