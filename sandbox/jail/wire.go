package jail

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// The packets between a zygote and its owner on a SEQPACKET socket. The first two
// are text, the others are fixed records of 8-byte fields in the machine's order:
//
//	owner -> zygote  setup as JSON, then
//	                 'C' request + descriptors: start a child
//	                 'K' send the child of a slot a signal, 'Q' ask for its times
//	zygote -> owner  'H' and hello as JSON, once, then
//	                 'X' the child of a slot and all its processes have ended
//	                 'F' the child could not be made
//	                 'Q' the times of the child
const (
	opHello  = 'H'
	opCall   = 'C'
	opKill   = 'K'
	opTimes  = 'Q' // both ways
	opFailed = 'F'
	opExited = 'X'
)

// Fields of a packet to the zygote: the operation comes first.
const (
	packetSlot   = 8
	packetUID    = 16
	packetSignal = 16 // of opKill
	packetKind   = 24 // 0 a call, 1 a kernel
	packetCPU    = 32 // struct rlimit
	packetMemory = 48 // struct rlimit
	packetSize   = 64
)

// Fields of a packet from the zygote: the operation comes first.
const (
	reportSlot  = 8
	reportValue = 16  // the wait status, a negative error number, or the process id in 'Q'
	reportStart = 24  // struct timespec: when the child was forked
	reportNow   = 40  // struct timespec: when this was sent
	reportUsage = 56  // struct rusage; the processor time as a timespec in 'Q'
	reportSize  = 200 // 56 + 144
)

// setup is the first packet to a zygote.
type setup struct {
	Mode        Mode              `json:"mode"`
	ModeReason  string            `json:"mode_reason"`
	Binds       []bind            `json:"binds"`
	Symlinks    [][2]string       `json:"symlinks"`
	Masks       []string          `json:"masks"`
	Again       []string          `json:"again"` // command to exec inside the root; empty to stay
	Loads       []string          `json:"loads"` // library directories for that command
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
	Threads     int               `json:"threads"`
	HugePages   bool              `json:"huge_pages"`
	Loop        string            `json:"loop"`    // machine code, in hexadecimal
	Rebuild     string            `json:"rebuild"` // machine code too
	Layout      map[string]int    `json:"layout"`
	Exec        []string          `json:"exec"`
	Without     []string          `json:"without"`
	Executables []string          `json:"executables"` // files that a program may execute; nil forbids processes
}

// hello is the first packet of a ready zygote.
type hello struct {
	Version string   `json:"version"`
	Layers  []Layer  `json:"layers"`
	Missing []string `json:"missing"`
}

func (j *Jail) setup(preload []string, spawn bool) ([]byte, error) {
	s := setup{
		Mode: j.mode, ModeReason: j.reason,
		Binds: j.tree.binds, Symlinks: j.tree.symlinks, Masks: j.tree.masks, Loads: j.tree.loads,
		Files:   map[string]string{"/etc/passwd": "sandbox:x:0:0::/tmp:/\n"},
		Paths:   j.tree.paths,
		Preload: preload,
		Numbers: systemCalls(),
		Loop:    j.code.loop, Rebuild: j.code.rebuild, Layout: layout(), Without: j.cfg.Without,
		Filter: j.filters[0], FilterPlain: j.filters[1],
		Rlimits:  j.rlimits(),
		TmpBytes: j.cfg.TmpBytes, TmpInodes: j.cfg.TmpInodes,
		TrialUID: j.uids.first(), OpenFiles: 64, Threads: j.threads(), HugePages: true,
	}
	if j.tree.moving() {
		s.Again = append([]string{j.tree.python}, bootArgs()...)
	}
	if spawn {
		s.Executables, s.Filter = j.tree.executables, j.filters[2]
	}
	if j.cfg.Fresh != nil {
		s.Exec = append([]string{j.tree.python}, j.cfg.Fresh...)
	}
	return json.Marshal(s)
}

// systemCalls returns the numbers of the system calls that the zygote and its children make
// by number.
func systemCalls() map[string]int {
	return map[string]int{
		"capset": unix.SYS_CAPSET, "chdir": unix.SYS_CHDIR, "close_range": unix.SYS_CLOSE_RANGE,
		"dup2": sysDup2, "landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
		"landlock_add_rule":      unix.SYS_LANDLOCK_ADD_RULE,
		"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF,
		"mmap":                   unix.SYS_MMAP, "mount": unix.SYS_MOUNT, "mremap": unix.SYS_MREMAP,
		"munmap": unix.SYS_MUNMAP, "pivot_root": unix.SYS_PIVOT_ROOT,
		"prctl": unix.SYS_PRCTL, "prlimit64": unix.SYS_PRLIMIT64,
		"rt_sigprocmask": unix.SYS_RT_SIGPROCMASK, "seccomp": unix.SYS_SECCOMP,
		"setgroups": unix.SYS_SETGROUPS, "setns": unix.SYS_SETNS, "setresgid": unix.SYS_SETRESGID,
		"setresuid": unix.SYS_SETRESUID, "setsid": unix.SYS_SETSID,
		"umount2": unix.SYS_UMOUNT2, "utimensat": unix.SYS_UTIMENSAT,
	}
}

// rlimits lists the limits that every call gets.
func (j *Jail) rlimits() [][2]int64 {
	limits := [][2]int64{
		{unix.RLIMIT_CORE, 1}, // 0 would still start the machine's core dump handler
		{unix.RLIMIT_FSIZE, j.cfg.TmpBytes},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
		{unix.RLIMIT_SIGPENDING, 64},
	}
	switch {
	case j.mode == ModeRoot:
		limits = append(limits, [2]int64{unix.RLIMIT_NPROC, 64})
	case j.mode == ModeUser: // the kernel counts all calls of the zygote together
		limits = append(limits, [2]int64{unix.RLIMIT_NPROC, 2048})
	}
	return limits
}

// threads returns the thread limit of a program, 0 for none. If all calls share one user
// id, the limit leaves the zygote enough to fork after a program has used its whole limit.
func (j *Jail) threads() int {
	switch j.mode {
	case ModeRoot:
		return 64
	case ModeUser:
		return 1536
	case ModePlain:
	}
	return 0
}

// packet is a request to the zygote.
type packet [packetSize]byte

func (p *packet) put(at int, v uint64) { binary.NativeEndian.PutUint64(p[at:], v) }

// slotPacket returns a request about the child of a slot.
func slotPacket(op byte, slot uint32) *packet {
	p := new(packet)
	p.put(0, uint64(op))
	p.put(packetSlot, uint64(slot))
	return p
}

// callPacket returns a request for a child; cpu is in seconds, memory in bytes.
func callPacket(kind, slot, uid uint32, cpu, memory uint64) *packet {
	p := slotPacket(opCall, slot)
	p.put(packetUID, uint64(uid))
	p.put(packetKind, uint64(kind))
	for i := range 2 { // soft and hard
		p.put(packetCPU+8*i, cpu)
		p.put(packetMemory+8*i, memory)
	}
	return p
}

// report is a packet of the zygote about the child of a slot.
type report struct {
	op    byte
	slot  uint32
	value int32
	fork  time.Duration // time of the fork, by the monotonic clock
	wall  time.Duration // time since the fork
	usage []byte
}

func parseReport(p []byte) (report, error) {
	if len(p) != reportSize {
		return report{}, fmt.Errorf("report of %d bytes", len(p))
	}
	u64 := binary.NativeEndian.Uint64
	stamp := func(at int) int64 { return int64(u64(p[at:]))*1e9 + int64(u64(p[at+8:])) }
	return report{
		op: byte(u64(p)), slot: uint32(u64(p[reportSlot:])), value: int32(u64(p[reportValue:])),
		fork: time.Duration(stamp(reportStart)), wall: time.Duration(stamp(reportNow) - stamp(reportStart)),
		usage: p[reportUsage:],
	}, nil
}

// exit is the result of wait4 for a child.
type exit struct {
	status unix.WaitStatus
	wall   time.Duration
	cpu    time.Duration
	peak   int64 // bytes
	oom    death // cause of a SIGKILL
}

func (r report) exit() exit {
	i64 := func(at int) int64 { return int64(binary.NativeEndian.Uint64(r.usage[at:])) }
	micros := (i64(0)+i64(16))*1e6 + i64(8) + i64(24) // user and system time, two struct timeval
	return exit{
		status: unix.WaitStatus(r.value), wall: r.wall,
		cpu: time.Duration(micros) * time.Microsecond, peak: i64(32) << 10,
	}
}

// times holds the run time of a child, the time of its fork by the monotonic clock, and its
// process id in the zygote's namespace.
type times struct {
	wall, cpu, fork time.Duration
	pid             int
}

func (r report) times() times {
	i64 := func(at int) int64 { return int64(binary.NativeEndian.Uint64(r.usage[at:])) }
	return times{wall: r.wall, fork: r.fork, pid: int(r.value), cpu: time.Duration(i64(0)*1e9 + i64(8))}
}

// The memory file of a call: header, fixture, code, compiled preamble, and, from a new page,
// the record that the child writes. The child unmaps the pages before the
// record when the program starts, so the jail writes the stage and the program may write the
// record.
const (
	headerSize = 24
	stampAt    = 4 // when the program began; overwrites two lengths
	valueMax   = 64 << 10
	recordHead = 28
	fieldRoom  = 16<<10 + 64
	recordRoom = recordHead + valueMax + 64 + 3*fieldRoom
	// windowSize bounds a memory file; every child reserves that much address space.
	windowSize = 4 << 20
)

// Stages of a child, the first field of its memory file.
const (
	stageForked   = 0
	stageEntered  = 1 // every layer holds, the program runs
	stageFinished = 2 // the record of a kernel's cell is complete
	stageRefused  = 3 // a layer failed; a length and a message follow
	stageFixture  = 4 // the fixture has not finished
)

// callFile writes the content of the memory file into b; the record starts at recordAt.
func callFile(b []byte, req sandbox.Request, preamble []byte) (content []byte, recordAt int64) {
	page := os.Getpagesize()
	recordAt = int64((headerSize + len(req.Fixture) + len(req.Code) + len(preamble) + page - 1) / page * page)
	b = binary.LittleEndian.AppendUint32(b, stageForked)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(req.Fixture)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(req.Code)))
	b = binary.LittleEndian.AppendUint32(b, uint32(recordAt))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(req.Limits.Output, valueMax)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(preamble)))
	b = append(b, req.Fixture...)
	b = append(b, req.Code...)
	return append(b, preamble...), recordAt
}

// record is the child's report about its program.
type record struct {
	code   int
	line   int
	kind   uint32
	ended  bool
	value  string
	etype  string
	emsg   string
	source string
}

// Kinds of a record.
const (
	kindFixture = 1 // the fixture failed
	kindMemory  = 2 // the uncaught exception is a MemoryError

	kindEnded = 256 // a bit: the program finished and the record is complete
)

var errRecord = errors.New("malformed record")

// recordLength returns the length in a record's header, at most recordRoom.
func recordLength(b []byte) int {
	sum := uint64(recordHead)
	for i := range 4 {
		sum += uint64(binary.LittleEndian.Uint32(b[12+4*i:]))
	}
	return int(min(sum, recordRoom))
}

func parseRecord(b []byte) (record, error) {
	if len(b) < recordHead {
		return record{}, errRecord
	}
	u32 := binary.LittleEndian.Uint32
	r := record{code: int(int32(u32(b))), line: int(u32(b[4:])), kind: u32(b[8:]) &^ kindEnded, ended: u32(b[8:])&kindEnded != 0}
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
