package jail

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The packets between a zygote and its owner, little-endian, on a SEQPACKET socket:
//
//	owner -> zygote  'C' id uid cpu memory + descriptors: memory file, stdout, stderr, stdin if any
//	                 'K' the same + descriptors: see kernel.go
//	zygote -> owner  'H' json             ready, once
//	                 'S' id + pidfd       the child exists
//	                 'F' id text          the child could not be made
//	                 'X' id status wall cpu maxrss
const (
	opHello   = 'H'
	opCall    = 'C'
	opKernel  = 'K'
	opStarted = 'S'
	opFailed  = 'F'
	opExited  = 'X'
)

// setup is the first packet that a zygote gets.
type setup struct {
	Mode        Mode              `json:"mode"`
	ModeReason  string            `json:"mode_reason"`
	Binds       []string          `json:"binds"`
	Symlinks    [][2]string       `json:"symlinks"`
	Files       map[string]string `json:"files"`
	Paths       []string          `json:"paths"`
	Preload     []string          `json:"preload"`
	Numbers     map[string]int    `json:"nr"`
	Filter      string            `json:"filter"`
	FilterPlain string            `json:"filter_plain"`
	Rlimits     [][2]int64        `json:"rlimits"`
	TmpBytes    int64             `json:"tmp_bytes"`
	TmpInodes   int               `json:"tmp_inodes"`
	TrialUID    uint32            `json:"trial_uid"`
	OpenFiles   int               `json:"open_files"`
	HugePages   bool              `json:"huge_pages"`
	Exec        []string          `json:"exec"`
}

// hello is what a zygote answers when it is ready.
type hello struct {
	Version string   `json:"version"`
	Layers  []Layer  `json:"layers"`
	Missing []string `json:"missing"`
}

func (j *Jail) setup(preload []string) ([]byte, error) {
	s := setup{
		Mode: j.mode, ModeReason: j.reason,
		Binds: j.tree.binds, Symlinks: j.tree.symlinks,
		Files:   map[string]string{"/etc/passwd": "sandbox:x:0:0::/tmp:/\n"},
		Paths:   j.py.Paths,
		Preload: preload,
		Numbers: map[string]int{
			"pivot_root": unix.SYS_PIVOT_ROOT, "seccomp": unix.SYS_SECCOMP, "capset": unix.SYS_CAPSET,
			"close_range":             unix.SYS_CLOSE_RANGE,
			"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
			"landlock_restrict_self":  unix.SYS_LANDLOCK_RESTRICT_SELF,
		},
		Filter: j.filters[0], FilterPlain: j.filters[1],
		Rlimits:  j.rlimits(),
		TmpBytes: j.cfg.TmpBytes, TmpInodes: j.cfg.TmpInodes,
		TrialUID: firstUID, OpenFiles: 64, HugePages: true,
	}
	if j.cfg.Fresh != nil {
		s.Exec = append([]string{j.py.Executable}, j.cfg.Fresh...)
	}
	return json.Marshal(s)
}

// rlimits lists the limits that are the same for every call.
func (j *Jail) rlimits() [][2]int64 {
	limits := [][2]int64{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, j.cfg.TmpBytes},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_SIGPENDING, 64},
	}
	switch {
	case j.mode == ModeRoot:
		limits = append(limits, [2]int64{unix.RLIMIT_NPROC, 64})
	case j.mode == ModeUser: // counted over all calls of the zygote
		limits = append(limits, [2]int64{unix.RLIMIT_NPROC, 2048})
	}
	return limits
}

// callPacket asks for a child.
func callPacket(op byte, id, uid, cpu uint32, memory uint64) []byte {
	p := append(make([]byte, 0, 24), op)
	p = binary.LittleEndian.AppendUint32(p, id)
	p = binary.LittleEndian.AppendUint32(p, uid)
	p = binary.LittleEndian.AppendUint32(p, cpu)
	return binary.LittleEndian.AppendUint64(p, memory)
}

// exit is what the zygote learned from wait4.
type exit struct {
	status unix.WaitStatus
	wall   time.Duration
	cpu    time.Duration
	peak   int64 // bytes
}

func parseExit(p []byte) (exit, error) {
	if len(p) != 28 {
		return exit{}, fmt.Errorf("exit packet of %d bytes", len(p))
	}
	u64 := binary.LittleEndian.Uint64
	return exit{
		status: unix.WaitStatus(binary.LittleEndian.Uint32(p)),
		wall:   time.Duration(u64(p[4:])),
		cpu:    time.Duration(u64(p[12:])),
		peak:   int64(u64(p[20:])) << 10,
	}, nil
}

// The memory file of a call: header, fixture, code, then room for the record
// that the child leaves. The child can write all of it, so nothing in it is trusted.
const (
	headerSize  = 17
	stageOffset = 16
	valueMax    = 64 << 10
	recordHead  = 28
	fieldRoom   = 16<<10 + 64
)

// Stages of a call, written by the child into the memory file.
const (
	stageForked   = 0
	stageEntered  = 1 // every layer holds, the program runs
	stageFinished = 2 // the record is complete
	stageRefused  = 3 // a layer failed; the record is a message
)

// callFile lays out the memory file; its content is followed by room for a record.
func callFile(fixture, code string, output int64) (content []byte, recordAt, size int64) {
	limit := min(output, valueMax)
	recordAt = int64(headerSize+len(fixture)+len(code)+7) &^ 7
	size = recordAt + recordHead + limit + 64 + 3*fieldRoom
	b := make([]byte, 0, recordAt)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(fixture)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(code)))
	b = binary.LittleEndian.AppendUint32(b, uint32(recordAt))
	b = binary.LittleEndian.AppendUint32(b, uint32(limit))
	b = append(b, stageForked)
	b = append(b, fixture...)
	return append(b, code...), recordAt, size
}

// record is what the child says of its program.
type record struct {
	code   int
	line   int
	kind   uint32
	value  string
	etype  string
	emsg   string
	source string
}

// Kinds of a record.
const (
	kindFixture = 1 // the fixture failed
	kindMemory  = 2 // the uncaught exception is a MemoryError
)

var errRecord = errors.New("malformed record")

func parseRecord(b []byte) (record, error) {
	if len(b) < recordHead {
		return record{}, errRecord
	}
	u32 := binary.LittleEndian.Uint32
	r := record{code: int(int32(u32(b))), line: int(u32(b[4:])), kind: u32(b[8:])}
	rest := b[recordHead:]
	for i, field := range []*string{&r.value, &r.etype, &r.emsg, &r.source} {
		n := u32(b[12+4*i:])
		if uint64(n) > uint64(len(rest)) {
			return record{}, errRecord
		}
		*field, rest = string(rest[:n]), rest[n:]
	}
	return r, nil
}
