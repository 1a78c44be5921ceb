package jail

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// policy selects a variant of the system call filter.
type policy struct {
	inside bool // allow signals and links, which only namespaces confine
	exec   bool // allow execve, for the fresh-interpreter baseline
	spawn  bool // allow processes and execve, where landlock limits the executables
}

// allowed holds the system calls that a program may make with any arguments: the calls with
// which CPython, numpy and glibc (or musl) compute, use files of the private /tmp, run
// threads and asyncio, and set timers. All other calls fail with EPERM. Names that this
// architecture lacks are skipped.
//
// Beside all calls that open, mount, trace or start anything, the list leaves out on
// purpose: calls that move data inside the kernel (splice, tee, sendfile, copy_file_range,
// vmsplice), calls that pass descriptors (sendmsg, recvmsg), calls that reach other
// programs through files of the shared root (flock, and fadvise64, which empties the page
// cache), the call that shows others' memory (mincore), and old or rare calls that Python
// does without.
const allowed = `
read write readv writev pread64 pwrite64 close close_range lseek
stat fstat lstat newfstatat statx access faccessat faccessat2
statfs fstatfs truncate ftruncate dup dup2 dup3 pipe pipe2 poll ppoll select pselect6
getdents64 getcwd chdir fchdir rename renameat mkdir mkdirat rmdir unlink unlinkat
symlink symlinkat readlink readlinkat chmod fchmod fchmodat umask utimensat
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
epoll_create1 epoll_ctl epoll_wait epoll_pwait shutdown getsockopt getsockname
mmap mprotect munmap mremap brk futex
set_robust_list rseq arch_prctl exit exit_group restart_syscall
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait sigaltstack pause
alarm setitimer getitimer nanosleep clock_nanosleep clock_gettime clock_getres
gettimeofday time times getrandom getrlimit getrusage sysinfo uname
sched_yield sched_getaffinity wait4
getpid getppid gettid getuid geteuid getgid getegid getpgrp getgroups
`

// allowedInside holds calls that affect only the call itself if it has namespaces: its
// processes and the files of its /tmp. The C library makes a named semaphore with a link.
const allowedInside = "kill tkill tgkill link"

// allowedSpawn holds the further calls with which a program starts processes and waits for
// them. All its processes stay in the namespaces, and under the filter, of the first one.
const allowedSpawn = "fork vfork execve set_tid_address waitid setsid setpgid getpgid getsid"

// spawnRules replace the rule about threads.
func spawnRules() []rule {
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	return []rule{
		{"clone", []check{{arg: 0, mask: namespaces | unix.CLONE_PARENT | unix.CLONE_PTRACE | unix.CLONE_UNTRACED | unix.CLONE_PIDFD, values: []uint32{0}}}},
		// A process that ignores the end of its children is not charged for their use.
		{"rt_sigaction", []check{isNot(0, uint32(unix.SIGCHLD)).then(answerAllow), is(1, 0), {arg: 1, high: true, mask: ^uint32(0), values: []uint32{0}}}},
	}
}

// pretended holds calls that succeed and do nothing. The private /tmp has no disk to wait
// for, and on files of the shared root they would let a program make the machine's disk
// flush its caches.
const pretended = "fsync fdatasync msync"

// absent holds calls that fail with ENOSYS: the C library then uses an older call whose
// arguments a filter can check.
const absent = "clone3"

// check passes when the masked half of an argument equals one of the values.
type check struct {
	arg    int
	high   bool // the upper 32 bits; the kernel cuts the arguments below to 32
	mask   uint32
	values []uint32
	// unless makes it pass when the half equals none of the values.
	unless bool
	// final, when set, is the answer to a call that passes, without the checks after
	// this one; a call that does not pass is checked further.
	final label
}

// is passes when an argument equals one of values.
func is(arg int, values ...uint32) check {
	return check{arg: arg, mask: ^uint32(0), values: values}
}

// isNot passes when an argument equals none of values.
func isNot(arg int, values ...uint32) check {
	return check{arg: arg, mask: ^uint32(0), values: values, unless: true}
}

// then makes the check final.
func (c check) then(answer label) check {
	c.final = answer
	return c
}

// within passes when an argument has no bits except flags.
func within(arg int, flags uint32) check {
	return check{arg: arg, mask: ^flags, values: []uint32{0}}
}

// rule allows one call when every check passes, except for the final ones.
type rule struct {
	name   string
	checks []check
}

// Flags of clone in pthread_create of glibc; musl adds the last flag.
const (
	threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND |
		unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS |
		unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
	threadFlagsMusl = threadFlags | unix.CLONE_DETACHED
)

// Values that x/sys/unix does not export for every architecture.
const (
	fionread       = 0x541b
	fionbio        = 0x5421
	fionclex       = 0x5450
	fioclex        = 0x5451
	unnamed        = unix.O_TMPFILE &^ unix.O_DIRECTORY
	guardInstall   = 102
	guardRemove    = 103
	sendFlags      = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT | unix.MSG_MORE
	recvFlags      = unix.MSG_DONTWAIT | unix.MSG_PEEK | unix.MSG_WAITALL | unix.MSG_TRUNC
	seccompAllow   = 0x7fff0000
	seccompErrno   = 0x00050000
	offsetNumber   = 0
	offsetArch     = 4
	offsetArgs     = 16
	firstOtherABI  = 0x40000000 // x32 on x86; nothing elsewhere
	biggestProgram = 250        // so that no jump is longer than its 8 bits
)

// partial lists the calls that are allowed only for certain arguments.
func partial() []rule {
	return []rule{
		// Threads; never a process, with or without shared memory, nor a namespace.
		{"clone", []check{is(0, threadFlags, threadFlagsMusl)}},
		{"socketpair", []check{is(0, unix.AF_UNIX)}},
		// To the other end of a pair only (no address), and without out-of-band
		// data, which only exploits use.
		{"sendto", []check{within(3, sendFlags), is(4, 0), {arg: 4, high: true, mask: ^uint32(0), values: []uint32{0}}}},
		{"recvfrom", []check{within(3, recvFlags)}},
		{"prctl", []check{is(0, unix.PR_SET_NAME, unix.PR_GET_NAME)}},
		// A program may read its limits and lower all but two: a program that lowers its
		// CPU time would be killed as if memory had run out, and a core size of 0 would
		// start the machine's handler for core dumps, if it has one.
		{"prlimit64", []check{is(0, 0), isNot(1, unix.RLIMIT_CPU, unix.RLIMIT_CORE).then(answerAllow), is(2, 0), {arg: 2, high: true, mask: ^uint32(0), values: []uint32{0}}}},
		{"ioctl", []check{is(1, unix.TCGETS, unix.TIOCGWINSZ, fionread, fionbio, fioclex, fionclex)}},
		// A file without a name would leave no trace in /tmp: see forkloop.go on rooms.
		{"open", []check{{arg: 1, mask: unnamed, values: []uint32{0}}}},
		{"openat", []check{{arg: 2, mask: unnamed, values: []uint32{0}}}},
		// sqlite needs record locks. They do nothing: /tmp has one process, and on files
		// that calls share, such as /dev/null, a lock would be a message to other calls.
		{"fcntl", []check{
			is(1, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW).then(answerDone),
			is(1, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL),
		}},
		// No merging of equal pages across processes, since its timing leaks data.
		{"madvise", []check{is(2, unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL,
			unix.MADV_WILLNEED, unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE,
			unix.MADV_NOHUGEPAGE, unix.MADV_DONTDUMP, unix.MADV_DODUMP, guardInstall, guardRemove)}},
	}
}

// filterHex returns the instructions of the assembled filter in hexadecimal.
func filterHex(p policy) (string, error) {
	program, err := filter(p)
	if err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	var out bytes.Buffer
	// struct sock_filter is in the byte order of the machine.
	if err := binary.Write(&out, binary.NativeEndian, raw); err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	return hex.EncodeToString(out.Bytes()), nil
}

// filter returns the filter program for this architecture.
func filter(p policy) ([]bpf.Instruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	var s searchTree
	put := func(names string, answer label) {
		for _, name := range strings.Fields(names) {
			if nr, ok := info.SyscallNames[name]; ok {
				s.set(uint32(nr), answer)
			}
		}
	}
	put(allowed, answerAllow)
	put(pretended, answerDone)
	put(absent, answerAbsent)
	if p.inside {
		put(allowedInside, answerAllow)
	}
	if p.exec {
		put("execve set_tid_address", answerAllow)
	}
	if p.spawn {
		put(allowedSpawn, answerAllow)
	}
	rules := partial()
	if p.spawn {
		rules = append(slices.DeleteFunc(rules, func(r rule) bool { return r.name == "clone" }), spawnRules()...)
	}
	for i, r := range rules {
		put(r.name, firstRule+label(i))
	}
	return s.program(uint32(info.ID), rules)
}
