package jail

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// policy selects the variants of the system call filter.
type policy struct {
	signals bool // kill and its kin: only where a pid namespace confines them
	exec    bool // execve: only for the fresh-interpreter baseline
}

// allowed holds the system calls that a program may make with any arguments.
// Anything else answers EPERM. Names that this architecture lacks are skipped.
const allowed = `
read write close mmap munmap mprotect brk futex rt_sigaction rt_sigprocmask
fstat newfstatat lseek openat madvise getrandom clock_gettime exit_group
readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
open creat stat lstat statx access faccessat faccessat2 statfs fstatfs
dup dup2 dup3 flock fsync fdatasync truncate ftruncate fallocate fadvise64
getdents getdents64 getcwd chdir fchdir rename renameat renameat2
mkdir mkdirat rmdir unlink unlinkat symlink symlinkat readlink readlinkat
chmod fchmod fchmodat umask utime utimes utimensat futimesat
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
pipe pipe2 poll ppoll select pselect6 eventfd eventfd2
epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
sendto recvfrom shutdown getsockopt setsockopt getsockname getpeername
mremap mincore msync membarrier
rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
alarm setitimer getitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime
nanosleep clock_nanosleep clock_getres gettimeofday time times
getrlimit setrlimit prlimit64 getrusage sysinfo uname getcpu
sched_yield sched_getaffinity sched_getparam sched_getscheduler
sched_get_priority_max sched_get_priority_min getpriority
getpid getppid gettid getuid geteuid getgid getegid getgroups getresuid getresgid
getpgrp getpgid getsid setpgid setsid
set_robust_list get_robust_list set_tid_address arch_prctl rseq futex_waitv
exit restart_syscall wait4 waitid close_range
`

// Argument values of the calls that are allowed only in part.
const (
	cloneThread = unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND
	errnoAction = 0x00050000
)

// filterHex assembles the filter and returns its raw instructions in hexadecimal.
func filterHex(p policy) (string, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	names := strings.Fields(allowed)
	if p.signals {
		names = append(names, "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
	}
	if p.exec {
		names = append(names, "execve")
	}
	known := names[:0]
	for _, name := range names {
		if _, ok := info.SyscallNames[name]; ok {
			known = append(known, name)
		}
	}
	rules := seccomp.Policy{
		DefaultAction: seccomp.ActionErrno,
		Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionAllow, Names: known},
			{Action: seccomp.ActionAllow, NamesWithCondtions: partial()},
			// glibc falls back to clone when clone3 does not exist.
			{Action: seccomp.Action(errnoAction | uint32(unix.ENOSYS)), Names: []string{"clone3"}},
		},
	}
	program, err := rules.Assemble()
	if err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return "", fmt.Errorf("system call filter: %w", err)
	}
	var out bytes.Buffer
	for _, ins := range raw {
		// struct sock_filter is in the byte order of the machine.
		if err := binary.Write(&out, binary.NativeEndian, ins); err != nil {
			return "", fmt.Errorf("system call filter: %w", err)
		}
	}
	return hex.EncodeToString(out.Bytes()), nil
}

// partial lists the calls that are allowed for certain arguments only.
func partial() []seccomp.NameWithConditions {
	one := func(name string, arg uint32, op seccomp.Operation, values ...uint64) []seccomp.NameWithConditions {
		var list []seccomp.NameWithConditions
		for _, v := range values {
			cond := seccomp.ArgumentConditions{{Argument: arg, Operation: op, Value: v}}
			list = append(list, seccomp.NameWithConditions{Name: name, Conditions: cond})
		}
		return list
	}
	var all []seccomp.NameWithConditions
	all = append(all, one("clone", 0, seccomp.BitsSet, cloneThread)...)
	all = append(all, one("socketpair", 0, seccomp.Equal, unix.AF_UNIX)...)
	all = append(all, one("prctl", 0, seccomp.Equal, unix.PR_SET_NAME, unix.PR_GET_NAME)...)
	all = append(all, one("ioctl", 1, seccomp.Equal,
		unix.TCGETS, unix.TIOCGWINSZ, fionread, fionbio, fioclex, fionclex)...)
	all = append(all, one("fcntl", 1, seccomp.Equal,
		unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
		unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW,
		unix.F_GETPIPE_SZ)...)
	return all
}

// Values of ioctl requests that x/sys/unix does not export for every architecture.
const (
	fionread = 0x541b
	fionbio  = 0x5421
	fionclex = 0x5450
	fioclex  = 0x5451
)
