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

// policy selects the variants of the system call filter.
type policy struct {
	inside bool // signals and links: only where namespaces confine them
	exec   bool // execve: only for the fresh-interpreter baseline
	spawn  bool // processes and execve: only where landlock says what may be executed
}

// allowed holds the system calls that a program may make with any arguments: what
// CPython, numpy and glibc (or musl) need to compute, to use files of the private
// /tmp, to run threads and asyncio, and to set their own timers. Anything else
// answers EPERM. Names that this architecture lacks are skipped.
//
// Left out on purpose, besides all that opens, mounts, traces or starts anything:
// what moves data inside the kernel (splice, tee, sendfile, copy_file_range,
// vmsplice), what passes descriptors (sendmsg, recvmsg), what reaches beyond
// the call through files of the shared root (flock, and fadvise64, which empties
// the page cache under others), what shows others' memory (mincore), and old or
// rare calls that Python does without.
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

// allowedInside reach only the call itself where namespaces surround it: its processes,
// and the files of a /tmp of its own. The C library makes a named semaphore with a link.
const allowedInside = "kill tkill tgkill link"

// allowedSpawn is what a program needs beyond that to start processes and to wait for
// them. All of them stay in the namespaces, and under the filter, of the first.
const allowedSpawn = "fork vfork execve set_tid_address waitid setsid setpgid getpgid getsid"

// spawnRules take the place of the rule about threads.
func spawnRules() []rule {
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	return []rule{
		{"clone", []check{{arg: 0, mask: namespaces | unix.CLONE_PARENT | unix.CLONE_PTRACE | unix.CLONE_UNTRACED | unix.CLONE_PIDFD, values: []uint32{0}}}},
		// Whoever ignores the ends of its children is not charged for what they used.
		{"rt_sigaction", []check{isNot(0, uint32(unix.SIGCHLD)).then(answerAllow), is(1, 0), {arg: 1, high: true, mask: ^uint32(0), values: []uint32{0}}}},
	}
}

// pretended calls answer success and do nothing: the private /tmp has no disk to
// wait for, and on files of the shared root they would make the machine's disk
// flush its caches at a program's pace.
const pretended = "fsync fdatasync msync"

// absent calls answer ENOSYS: the C library then takes the older call, whose
// arguments a filter can see.
const absent = "clone3"

// check passes when the masked half of an argument is one of the values.
type check struct {
	arg    int
	high   bool // the upper 32 bits; the kernel cuts the arguments below to 32
	mask   uint32
	values []uint32
	// unless makes it pass when the half is none of the values.
	unless bool
	// final, when set, is the answer of a call that passes, whatever the checks after
	// this one say; a call that does not pass goes on to them.
	final label
}

// is passes when an argument is one of values.
func is(arg int, values ...uint32) check {
	return check{arg: arg, mask: ^uint32(0), values: values}
}

// isNot passes when an argument is none of values.
func isNot(arg int, values ...uint32) check {
	return check{arg: arg, mask: ^uint32(0), values: values, unless: true}
}

// then makes the check final.
func (c check) then(answer label) check {
	c.final = answer
	return c
}

// within passes when an argument has no bits but flags.
func within(arg int, flags uint32) check {
	return check{arg: arg, mask: ^flags, values: []uint32{0}}
}

// rule allows one call when every check passes, but for the final ones.
type rule struct {
	name   string
	checks []check
}

// What pthread_create asks for in glibc; musl adds the last flag.
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

// partial lists the calls that are allowed for certain arguments only.
func partial() []rule {
	return []rule{
		// Threads; never a process, with or without shared memory, nor a namespace.
		{"clone", []check{is(0, threadFlags, threadFlagsMusl)}},
		{"socketpair", []check{is(0, unix.AF_UNIX)}},
		// To the other end of a pair only (no address), and without out-of-band
		// data, which nobody uses but exploits.
		{"sendto", []check{within(3, sendFlags), is(4, 0), {arg: 4, high: true, mask: ^uint32(0), values: []uint32{0}}}},
		{"recvfrom", []check{within(3, recvFlags)}},
		{"prctl", []check{is(0, unix.PR_SET_NAME, unix.PR_GET_NAME)}},
		// One's own limits may be read. All but two may be lowered: who lowers the CPU
		// time is killed as if memory had run out, and who lowers the size of a core
		// to 0 has the handler started that the machine may have for cores.
		{"prlimit64", []check{is(0, 0), isNot(1, unix.RLIMIT_CPU, unix.RLIMIT_CORE).then(answerAllow), is(2, 0), {arg: 2, high: true, mask: ^uint32(0), values: []uint32{0}}}},
		{"ioctl", []check{is(1, unix.TCGETS, unix.TIOCGWINSZ, fionread, fionbio, fioclex, fionclex)}},
		// A file without a name would leave no trace in /tmp: see forkloop.go on rooms.
		{"open", []check{{arg: 1, mask: unnamed, values: []uint32{0}}}},
		{"openat", []check{{arg: 2, mask: unnamed, values: []uint32{0}}}},
		// Record locks are for sqlite, and pretended: /tmp has one process, and on files
		// that calls share, such as /dev/null, a lock is a message to others.
		{"fcntl", []check{
			is(1, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW).then(answerDone),
			is(1, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL),
		}},
		// No merging of equal pages across processes, which can be timed.
		{"madvise", []check{is(2, unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL,
			unix.MADV_WILLNEED, unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE,
			unix.MADV_NOHUGEPAGE, unix.MADV_DONTDUMP, unix.MADV_DODUMP, guardInstall, guardRemove)}},
	}
}

// filterHex assembles the filter and returns its raw instructions in hexadecimal.
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

// filter returns the program for this architecture.
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
