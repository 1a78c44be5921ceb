#include "go_asm.h"
#include "textflag.h"

// System calls by number (asm/unistd_64.h).
#define sysRead 0
#define sysWrite 1
#define sysStat 4
#define sysPoll 7
#define sysRecvmsg 47
#define sysClone 56
#define sysExit 60
#define sysWait4 61
#define sysKill 62
#define sysClockGettime 228
#define sysSetns 308
#define sysCloseRange 436

#define newNS 0x20000
#define cloneVM 0x111 // with SIGCHLD

// What follows a report.
#define afterExit 0
#define afterTimes 1
#define afterRefusal 2
#define afterRenewal 3

// forkLoop serves the control socket of a zygote. It is called as a C function of
// one argument, the block (see forkloop.go), which stays in R12.
//
// It returns in each child: 0 when all steps of its script are done, or else the
// number of the failed step shifted left by 16 plus the error number. In the
// zygote it returns -1, when the owner is gone.
TEXT forkLoop<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BX
	PUSHQ BP
	PUSHQ R12
	PUSHQ R13
	PUSHQ R14
	PUSHQ R15
	MOVQ  DI, R12

wait:
	LEAQ  const_blockPoll(R12), DI
	MOVQ  $2, SI
	MOVQ  $-1, DX
	MOVQ  $sysPoll, AX
	SYSCALL
	TESTQ AX, AX
	JLE   wait                                // interrupted
	CMPW  const_pollSignaled(R12), $0
	JEQ   asked

	// Children have ended: empty the signalfd, then report each of them.
	MOVQ const_blockSignals(R12), DI
	LEAQ const_blockSiginfo(R12), SI
	MOVQ $const_siginfoSize, DX
	MOVQ $sysRead, AX
	SYSCALL

reap:
	MOVQ  $-1, DI
	LEAQ  (const_blockReport+const_reportValue)(R12), SI
	MOVQ  $1, DX                              // WNOHANG
	LEAQ  (const_blockReport+const_reportUsage)(R12), R10
	MOVQ  $sysWait4, AX
	SYSCALL
	TESTQ AX, AX
	JLE   asked
	XORQ  BX, BX
	LEAQ  const_blockTable(R12), R13

find:
	CMPQ const_entryPID(R13), AX
	JEQ  found
	ADDQ $const_entrySize, R13
	INCQ BX
	CMPQ BX, $const_maxInFlight
	JLT  find
	JMP  reap                                 // not a child of ours

found:
	MOVQ $0, const_entryPID(R13)
	MOVQ $const_opExited, const_blockReport(R12)
	MOVQ $afterExit, R15

report:
	// Sends what is known of child BX, whose entry is R13, and goes on as R15 says.
	MOVQ BX, (const_blockReport+const_reportSlot)(R12)
	MOVQ (const_entryStart+0)(R13), AX
	MOVQ AX, (const_blockReport+const_reportStart+0)(R12)
	MOVQ (const_entryStart+8)(R13), AX
	MOVQ AX, (const_blockReport+const_reportStart+8)(R12)
	MOVQ $1, DI                               // CLOCK_MONOTONIC
	LEAQ (const_blockReport+const_reportNow)(R12), SI
	MOVQ $sysClockGettime, AX
	SYSCALL
	MOVQ const_blockControl(R12), DI
	LEAQ const_blockReport(R12), SI
	MOVQ $const_reportSize, DX
	MOVQ $sysWrite, AX
	SYSCALL
	TESTQ AX, AX
	JLT  gone
	CMPQ R15, $afterExit
	JEQ  leave
	CMPQ R15, $afterRefusal
	JEQ  drop
	JMP  wait

leave:
	// The room of the child, if it had one, is free again or has to be renewed.
	MOVQ  const_entryRoom(R13), R14
	TESTQ R14, R14
	JEQ   reap
	MOVQ  $0, const_entryRoom(R13)
	MOVQ  const_roomMount(R14), DI
	MOVQ  $newNS, SI
	MOVQ  $sysSetns, AX
	SYSCALL
	TESTQ AX, AX
	JLT   reap                                // never used again
	LEAQ  const_blockTmp(R12), DI
	LEAQ  const_blockStat(R12), SI
	MOVQ  $sysStat, AX
	SYSCALL
	MOVQ  AX, BP
	MOVQ  const_blockBase(R12), DI
	MOVQ  $newNS, SI
	MOVQ  $sysSetns, AX
	SYSCALL
	TESTQ AX, AX
	JLT   gone
	TESTQ BP, BP
	JLT   reap
	MOVQ  (const_statChanged+0)(R12), AX
	ORQ   (const_statChanged+8)(R12), AX
	JNE   helper
	MOVQ  $const_roomFree, const_roomState(R14)
	JMP   reap

helper:
	// The helper has the memory of the zygote, its stack too, which it leaves alone.
	MOVQ  $cloneVM, DI
	XORQ  SI, SI
	XORQ  DX, DX
	XORQ  R10, R10
	XORQ  R8, R8
	MOVQ  $sysClone, AX
	SYSCALL
	TESTQ AX, AX
	JNE   reap
	MOVQ  R14, BP
	MOVQ  const_roomMount(BP), DI
	MOVQ  $newNS, SI
	MOVQ  $sysSetns, AX
	SYSCALL
	TESTQ AX, AX
	JLT   over
	MOVQ  const_blockRenew(R12), R13
	XORQ  R14, R14
	MOVQ  $afterRenewal, R15
	JMP   step

renewed:
	MOVQ $const_roomFree, const_roomState(BP)

over:
	XORQ DI, DI
	MOVQ $sysExit, AX
	SYSCALL

asked:
	CMPW  const_pollAsked(R12), $0
	JEQ   wait
	MOVQ  $const_rightsSize, (const_blockMessage+40)(R12)
	MOVQ  const_blockControl(R12), DI
	LEAQ  const_blockMessage(R12), SI
	XORQ  DX, DX
	MOVQ  $sysRecvmsg, AX
	SYSCALL
	CMPQ  AX, $-4                             // EINTR
	JEQ   wait
	CMPQ  AX, $const_packetSize
	JNE   gone
	MOVQ  (const_blockPacket+const_packetSlot)(R12), BX
	CMPQ  BX, $const_maxInFlight
	JCC   gone
	MOVQ  BX, R13
	SHLQ  $const_entryShift, R13
	LEAQ  const_blockTable(R12)(R13*1), R13
	MOVQ  const_blockPacket(R12), AX
	CMPQ  AX, $const_opCall
	JEQ   fork
	CMPQ  const_entryPID(R13), $0
	JEQ   wait                                // ended meanwhile: its report is on the way
	CMPQ  AX, $const_opKill
	JEQ   kill

	// How long has it run? The clock of a process is the complement of its id,
	// tagged (clock_getcpuclockid(3)).
	MOVQ const_entryPID(R13), DI
	MOVQ DI, (const_blockReport+const_reportValue)(R12)
	NOTQ DI
	SHLQ $3, DI
	ORQ  $2, DI
	MOVLQSX DI, DI
	LEAQ (const_blockReport+const_reportUsage)(R12), SI
	MOVQ $sysClockGettime, AX
	SYSCALL
	MOVQ $const_opTimes, const_blockReport(R12)
	MOVQ $afterTimes, R15
	JMP  report

kill:
	MOVQ const_entryPID(R13), DI
	MOVQ (const_blockPacket+const_packetSignal)(R12), SI
	MOVQ $sysKill, AX
	SYSCALL
	JMP  wait

fork:
	MOVQ  $1, DI                              // CLOCK_MONOTONIC
	LEAQ  const_entryStart(R13), SI
	MOVQ  $sysClockGettime, AX
	SYSCALL
	MOVQ  $0, const_entryRoom(R13)
	MOVQ  const_blockFlags(R12), DI
	MOVQ  (const_blockPacket+const_packetKind)(R12), AX
	ANDQ  $1, AX
	MOVQ  AX, const_blockLent(R12)
	JNE   make                                // a kernel lives long and has its own namespaces
	LEAQ  const_blockRooms(R12), R14
	MOVQ  $const_maxRooms, CX

room:
	CMPQ const_roomState(R14), $const_roomFree
	JEQ  lend
	ADDQ $const_roomSize, R14
	DECQ CX
	JNE  room
	JMP  make

lend:
	MOVQ $const_roomTaken, const_roomState(R14)
	MOVQ R14, const_entryRoom(R13)
	MOVQ const_roomMount(R14), AX
	MOVQ AX, (const_blockRoom+0)(R12)
	MOVQ const_roomIPC(R14), AX
	MOVQ AX, (const_blockRoom+8)(R12)
	MOVQ $2, const_blockLent(R12)
	MOVQ const_blockShort(R12), DI

make:
	XORQ  SI, SI
	XORQ  DX, DX
	MOVQ  const_blockTID(R12), R10
	XORQ  R8, R8
	MOVQ  $sysClone, AX
	SYSCALL
	TESTQ AX, AX
	JEQ   child
	JLT   refused
	MOVQ  AX, const_entryPID(R13)

drop:
	// The descriptors of the packet are the child's now.
	MOVQ const_blockReceived(R12), DI
	MOVQ $0x7fffffff, SI
	XORQ DX, DX
	MOVQ $sysCloseRange, AX
	SYSCALL
	JMP  wait

refused:
	MOVQ  const_entryRoom(R13), R14
	TESTQ R14, R14
	JEQ   refuse
	MOVQ  $const_roomFree, const_roomState(R14)

refuse:
	MOVQ  AX, (const_blockReport+const_reportValue)(R12)
	MOVQ  $const_opFailed, const_blockReport(R12)
	MOVQ  $afterRefusal, R15
	JMP   report

gone:
	MOVQ $-1, AX
	JMP  return

child:
	MOVQ const_blockLent(R12), AX
	MOVQ const_blockScripts(R12)(AX*8), R13
	XORQ R14, R14
	XORQ R15, R15

step:
	MOVQ 0(R13), AX
	CMPQ AX, $-1
	JEQ  entered
	MOVQ const_stepMask(R13), BX
	MOVQ (const_stepArgs+0)(R13), DI
	BTQ  $0, BX
	JCC  second
	MOVQ (DI), DI

second:
	MOVQ (const_stepArgs+8)(R13), SI
	BTQ  $1, BX
	JCC  third
	MOVQ (SI), SI

third:
	MOVQ (const_stepArgs+16)(R13), DX
	BTQ  $2, BX
	JCC  rest
	MOVQ (DX), DX

rest:
	MOVQ (const_stepArgs+24)(R13), R10
	MOVQ (const_stepArgs+32)(R13), R8
	MOVQ (const_stepArgs+40)(R13), R9
	SYSCALL
	CMPQ AX, $-4095                           // an error is one of the last 4095 numbers
	JCS  next
	BTQ  $const_stepMayFail, BX
	JCS  next
	CMPQ R15, $afterRenewal
	JEQ  over                                 // the room is never used again
	NEGQ AX
	SHLQ $16, R14
	ORQ  R14, AX
	JMP  return

next:
	ADDQ $const_stepSize, R13
	INCQ R14
	JMP  step

entered:
	CMPQ R15, $afterRenewal
	JEQ  renewed
	XORQ AX, AX

return:
	POPQ R15
	POPQ R14
	POPQ R13
	POPQ R12
	POPQ BP
	POPQ BX
	RET
	QUAD $const_codeEnd

// arenaAlloc is the alloc function of a PyObjectArenaAllocator. It is called as a C
// function of a context, two words that hold the next free byte and the end of a
// stretch of memory, and of a size. It returns the next size bytes of the stretch,
// or null when it is used up.
TEXT arenaAlloc<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ (DI), AX
	LEAQ (AX)(SI*1), DX
	CMPQ DX, 8(DI)
	JHI  full
	MOVQ DX, (DI)
	RET

full:
	XORQ AX, AX
	RET
	QUAD $const_codeEnd

// rebuild works through a list of steps like those of a script; the step number -2 copies
// argument 2 bytes from argument 1 to argument 0. It is called as a C function of the list
// and touches no other memory, so that it can replace what the interpreter stands on.
// It returns 0, or the error of the first step that failed; later steps are not made.
TEXT rebuild<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ R12
	MOVQ  DI, R12

move:
	MOVQ 0(R12), AX
	CMPQ AX, $-1
	JEQ  moved
	MOVQ (const_stepArgs+0)(R12), DI
	MOVQ (const_stepArgs+8)(R12), SI
	MOVQ (const_stepArgs+16)(R12), DX
	CMPQ AX, $-2
	JNE  call
	MOVQ DX, CX
	REP;  MOVSB
	XORQ AX, AX
	JMP  made

call:
	MOVQ (const_stepArgs+24)(R12), R10
	MOVQ (const_stepArgs+32)(R12), R8
	MOVQ (const_stepArgs+40)(R12), R9
	SYSCALL
	CMPQ AX, $-4095
	JCC  done

made:
	ADDQ $const_stepSize, R12
	JMP  move

moved:
	XORQ AX, AX

done:
	POPQ R12
	RET
	QUAD $const_codeEnd

// func forkLoopAddress() unsafe.Pointer
TEXT ·forkLoopAddress(SB), NOSPLIT, $0-8
	LEAQ forkLoop<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func arenaAllocAddress() unsafe.Pointer
TEXT ·arenaAllocAddress(SB), NOSPLIT, $0-8
	LEAQ arenaAlloc<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func rebuildAddress() unsafe.Pointer
TEXT ·rebuildAddress(SB), NOSPLIT, $0-8
	LEAQ rebuild<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET
