package jail

// The fork loop is the code of a zygote that runs between calls. It is machine
// code (forkloop_amd64.s) that the zygote maps into itself and enters once, for
// two reasons. No more Python runs in the zygote, so no page of its
// heap is written while a child shares it: nothing is copied in the parent and
// its huge pages stay whole. And a child enters its layers as one list of system
// calls, without touching a page of the interpreter.
//
// The loop works on a block of memory that the zygote has filled in; all its
// fields are 8 bytes wide unless noted. Offsets and operations are named
// here; the assembler reads them from go_asm.h and the zygote from its layout.
const (
	blockControl  = 0   // descriptor of the control socket
	blockSignals  = 8   // descriptor of a signalfd for SIGCHLD
	blockFlags    = 16  // of clone(2)
	blockTID      = 24  // where the C library keeps the id of its thread
	blockReceived = 32  // the first descriptor that a packet brings
	blockScripts  = 40  // addresses of three scripts: of a call, of a kernel, of a call in a room
	blockPoll     = 64  // struct pollfd [2]: control, signals
	blockMessage  = 80  // struct msghdr for a packet that arrives
	blockRights   = 160 // its descriptors, rightsSize bytes
	blockPacket   = 224 // the packet, packetSize bytes
	blockReport   = 288 // the packet that is sent, reportSize bytes
	blockSiginfo  = 512 // struct signalfd_siginfo, 128 bytes
	blockStat     = 640 // struct stat, 144 bytes
	blockRoom     = 784 // the descriptors of the room that a child enters
	blockLent     = 800 // the script of the new child: 0, 1 or 2
	blockShort    = 808 // flags of clone(2) for a child that gets a room
	blockRenew    = 816 // address of the script that renews a room
	blockBase     = 824 // descriptor of the mount namespace of the zygote
	blockTmp      = 832 // "/tmp"
	blockRooms    = 1024
	blockTable    = blockRooms + maxRooms*roomSize
	blockSize     = blockTable + maxInFlight*entrySize

	rightsSize  = 64
	siginfoSize = 128
)

// A table entry is a child in flight: its process id and when it was forked.
const (
	entrySize    = 32
	entryPID     = 0
	entryStart   = 8  // struct timespec
	entryRoom    = 24 // address of its room; 0 without
	maxInFlight  = 8192
	entryShift   = 5 // entrySize as a power of two
	pollSignaled = blockPoll + 14
	pollAsked    = blockPoll + 6
	statChanged  = blockStat + 88 // struct timespec, of the last change
)

// A room is a mount and an IPC namespace with an empty /tmp. It is made in advance and
// used by one call after the other. After a call, the next one gets the same room unchanged
// only if the call never made a file in /tmp. The change time of the directory proves
// that: it is still 0, and no program can reset it. Otherwise a helper process, which shares
// only memory with the zygote, gives the room a new file system in the background.
const (
	roomSize  = 32
	roomState = 0 // 0 when there is none
	roomMount = 8 // descriptors of the namespaces
	roomIPC   = 16
	maxRooms  = 16

	roomFree  = 1
	roomTaken = 2
)

// A script is a list of steps: a system call number, a mask and six arguments.
// Bit i of the mask says that argument i is the address of the value; the bit
// stepMayFail says that the script ignores an error. Number -1 ends the script.
const (
	stepSize    = 64
	stepMask    = 8
	stepArgs    = 16
	stepMayFail = 8
)

// code holds functions of machine code, in hexadecimal.
type code struct {
	loop    string // forkLoop
	arena   string // arenaAlloc
	rebuild string // rebuild
}

// layout returns the offsets and sizes that the zygote needs.
func layout() map[string]int {
	return map[string]int{
		"control": blockControl, "signals": blockSignals, "flags": blockFlags, "tid": blockTID,
		"received": blockReceived, "scripts": blockScripts, "poll": blockPoll, "message": blockMessage,
		"rights": blockRights, "rights_size": rightsSize, "packet": blockPacket, "packet_size": packetSize,
		"size": blockSize, "step_size": stepSize, "may_fail": 1 << stepMayFail,
		"short": blockShort, "renew": blockRenew, "base": blockBase, "lent": blockLent, "tmp": blockTmp,
		"room": blockRoom, "rooms": blockRooms, "room_size": roomSize, "max_rooms": maxRooms,
		"room_free": roomFree,
		"kind":      blockPacket + packetKind,
		"uid":       blockPacket + packetUID, "cpu": blockPacket + packetCPU, "memory": blockPacket + packetMemory,
		"window": windowSize,
	}
}
