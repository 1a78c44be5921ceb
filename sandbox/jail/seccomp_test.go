package jail

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine runs a filter the way the kernel does.
type machine struct {
	t    *testing.T
	vm   *bpf.VM
	info *arch.Info
}

func newMachine(t *testing.T, p policy) machine {
	t.Helper()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	program, err := filter(p)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return machine{t, vm, info}
}

// ask returns what the filter answers to one system call.
func (m machine) ask(abi, number uint32, args ...uint64) uint32 {
	m.t.Helper()
	// The kernel loads words of its own byte order, the machine of this test
	// big-endian ones: each 32-bit word is laid out for the latter.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], abi)
	for i, arg := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(arg>>32))
	}
	got, err := m.vm.Run(data)
	if err != nil {
		m.t.Fatal(err)
	}
	return uint32(got)
}

func (m machine) call(name string, args ...uint64) uint32 {
	m.t.Helper()
	number, ok := m.info.SyscallNames[name]
	if !ok {
		m.t.Skipf("no system call %s here", name)
	}
	return m.ask(uint32(m.info.ID), uint32(number), args...)
}

const (
	allow  = seccompAllow
	refuse = seccompErrno | uint32(unix.EPERM)
	done   = seccompErrno
	noSys  = seccompErrno | uint32(unix.ENOSYS)
)

// want is the policy read from the lists, without the tree.
func want(p policy, name string) (answer uint32, ruled bool) {
	in := func(names string) bool { return name != "" && slices.Contains(strings.Fields(names), name) }
	rules := partial()
	if p.spawn {
		rules = append(rules, spawnRules()...)
	}
	for _, r := range rules {
		if r.name == name {
			return 0, true
		}
	}
	switch {
	case in(allowed), p.spawn && in(allowedSpawn), p.inside && in(allowedInside), p.exec && in("execve set_tid_address"):
		return allow, false
	case in(pretended):
		return done, false
	case in(absent):
		return noSys, false
	}
	return refuse, false
}

func TestFilterAnswersWhatTheListsSay(t *testing.T) {
	for _, p := range []policy{{}, {inside: true}, {exec: true}, {inside: true, exec: true}, {inside: true, spawn: true}} {
		m := newMachine(t, p)
		draw := rand.New(rand.NewPCG(1, 2))
		for number := range uint32(1025) {
			answer, ruled := want(p, m.info.SyscallNumbers[int(number)])
			if ruled {
				continue
			}
			for range 4 {
				args := []uint64{draw.Uint64(), draw.Uint64(), draw.Uint64(), draw.Uint64(), draw.Uint64(), draw.Uint64()}
				if got := m.ask(uint32(m.info.ID), number, args...); got != answer {
					t.Fatalf("%+v: call %d (%s): got %#x, want %#x", p, number, m.info.SyscallNumbers[int(number)], got, answer)
				}
			}
		}
	}
}

func TestFilterRefusesOtherABIs(t *testing.T) {
	m := newMachine(t, policy{inside: true, exec: true})
	for number := range uint32(1025) {
		for _, n := range []uint32{number | firstOtherABI, number | 1<<31, ^number} {
			if got := m.ask(uint32(m.info.ID), n); got != noSys {
				t.Fatalf("call %#x: got %#x, want %#x", n, got, noSys)
			}
		}
		for _, info := range []*arch.Info{arch.I386, arch.ARM, arch.AARCH64, arch.X86_64, {}} {
			if info.ID == m.info.ID {
				continue
			}
			if got := m.ask(uint32(info.ID), number); got != refuse {
				t.Fatalf("architecture %#x call %d: got %#x, want %#x", uint32(info.ID), number, got, refuse)
			}
		}
	}
}

func TestFilterRules(t *testing.T) {
	const high = 1 << 32
	for _, c := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"clone", []uint64{threadFlags}, allow},
		{"clone", []uint64{threadFlagsMusl}, allow},
		{"clone", []uint64{uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_CHILD_CLEARTID | unix.CLONE_CHILD_SETTID | uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_VM}, refuse},
		{"clone", []uint64{unix.CLONE_SIGHAND | unix.CLONE_VM}, refuse},
		{"clone", []uint64{threadFlags | unix.CLONE_NEWUSER}, refuse},
		{"clone", []uint64{threadFlags | unix.CLONE_NEWNS}, refuse},
		{"clone", []uint64{threadFlags | unix.CLONE_PTRACE}, refuse},
		{"clone", []uint64{threadFlags | unix.CLONE_UNTRACED}, refuse},
		{"clone", []uint64{threadFlags | unix.CLONE_PIDFD}, refuse},
		{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"socketpair", []uint64{unix.AF_INET, unix.SOCK_STREAM}, refuse},
		{"socketpair", []uint64{30, unix.SOCK_STREAM}, refuse}, // AF_TIPC
		{"sendto", []uint64{3, 0x1000, 8, 0, 0, 0}, allow},
		{"sendto", []uint64{3, 0x1000, 8, unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT, 0, 0}, allow},
		{"sendto", []uint64{3, 0x1000, 8, unix.MSG_OOB, 0, 0}, refuse},
		{"sendto", []uint64{3, 0x1000, 8, unix.MSG_ZEROCOPY, 0, 0}, refuse},
		{"sendto", []uint64{3, 0x1000, 8, 0, 0x1000, 16}, refuse},
		{"sendto", []uint64{3, 0x1000, 8, 0, 0x1000 * high, 16}, refuse},
		{"recvfrom", []uint64{3, 0x1000, 8, unix.MSG_PEEK}, allow},
		{"recvfrom", []uint64{3, 0x1000, 8, unix.MSG_OOB}, refuse},
		{"recvfrom", []uint64{3, 0x1000, 8, unix.MSG_ERRQUEUE}, refuse},
		{"prctl", []uint64{unix.PR_SET_NAME}, allow},
		{"prctl", []uint64{unix.PR_SET_DUMPABLE}, refuse},
		{"prctl", []uint64{unix.PR_SET_MM}, refuse},
		{"prctl", []uint64{unix.PR_SET_SECCOMP}, refuse},
		{"prctl", []uint64{unix.PR_SET_NO_NEW_PRIVS}, refuse},
		{"prlimit64", []uint64{0, unix.RLIMIT_AS}, allow},
		{"prlimit64", []uint64{1, unix.RLIMIT_AS}, refuse},
		{"prlimit64", []uint64{0, unix.RLIMIT_AS, 0x7f0000001000}, allow},
		{"prlimit64", []uint64{0, unix.RLIMIT_CPU, 0, 0x7f0000001000}, allow},
		{"prlimit64", []uint64{0, unix.RLIMIT_CPU, 0x1000}, refuse},
		{"prlimit64", []uint64{0, unix.RLIMIT_CPU, 0x100000000}, refuse},
		{"prlimit64", []uint64{0, high | unix.RLIMIT_CPU, 0x1000}, refuse},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 0x1000}, refuse},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 0}, allow},
		{"ioctl", []uint64{1, unix.TCGETS}, allow},
		{"ioctl", []uint64{1, fioclex}, allow},
		{"ioctl", []uint64{0, unix.TIOCSTI}, refuse},
		{"ioctl", []uint64{0, unix.TIOCLINUX}, refuse},
		{"fcntl", []uint64{1, unix.F_GETFL}, allow},
		{"fcntl", []uint64{1, unix.F_GETFD}, allow},
		{"fcntl", []uint64{1, unix.F_GETLK}, done},
		{"fcntl", []uint64{1, unix.F_SETLK}, done},
		{"fcntl", []uint64{1, unix.F_SETLKW}, done},
		{"fcntl", []uint64{1, unix.F_OFD_SETLK}, refuse},
		{"fcntl", []uint64{1, unix.F_OFD_GETLK}, refuse},
		{"fcntl", []uint64{1, unix.F_SETOWN}, refuse},
		{"fcntl", []uint64{1, unix.F_SETLEASE}, refuse},
		{"fcntl", []uint64{1, unix.F_NOTIFY}, refuse},
		{"fcntl", []uint64{1, unix.F_SETPIPE_SZ}, refuse},
		{"madvise", []uint64{0, 4096, unix.MADV_DONTNEED}, allow},
		{"madvise", []uint64{0, 4096, unix.MADV_DODUMP}, allow},
		{"madvise", []uint64{0, 4096, unix.MADV_MERGEABLE}, refuse},
		{"madvise", []uint64{0, 4096, unix.MADV_PAGEOUT}, refuse},
		{"madvise", []uint64{0, 4096, unix.MADV_HWPOISON}, refuse},
		// The kernel looks at 32 bits of these, so the filter does as well.
		{"clone", []uint64{high | uint64(unix.SIGCHLD)}, refuse},
		{"socketpair", []uint64{high | unix.AF_INET, unix.SOCK_STREAM}, refuse},
	} {
		t.Run(fmt.Sprintf("%s %#x", c.name, c.args), func(t *testing.T) {
			if got := newMachine(t, policy{}).call(c.name, c.args...); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
}

// TestFilterOfThoseThatSpawn: processes, but no namespaces, and no way not to be charged
// for children.
func TestFilterOfThoseThatSpawn(t *testing.T) {
	m := newMachine(t, policy{inside: true, spawn: true})
	for _, c := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"clone", []uint64{uint64(unix.SIGCHLD)}, allow},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, allow},
		{"clone", []uint64{threadFlags}, allow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_NEWPID | unix.CLONE_NEWNS | uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_PARENT | uint64(unix.SIGCHLD)}, refuse},
		{"clone", []uint64{unix.CLONE_PTRACE | uint64(unix.SIGCHLD)}, refuse},
		{"clone3", nil, noSys},
		{"execveat", nil, refuse},
		{"unshare", nil, refuse},
		{"ptrace", nil, refuse},
		{"pidfd_open", nil, refuse},
		{"rt_sigaction", []uint64{uint64(unix.SIGTERM), 1 << 20}, allow},
		{"rt_sigaction", []uint64{uint64(unix.SIGCHLD), 1 << 20}, refuse},
		{"rt_sigaction", []uint64{uint64(unix.SIGCHLD), 1 << 40}, refuse},
		{"rt_sigaction", []uint64{uint64(unix.SIGCHLD), 0}, allow},
		{"rt_sigaction", []uint64{1<<32 | uint64(unix.SIGCHLD), 1 << 20}, refuse},
	} {
		if got := m.call(c.name, c.args...); got != c.want {
			t.Errorf("%s %#x: got %#x, want %#x", c.name, c.args, got, c.want)
		}
	}
}

// TestFilterKeepsOut names what must never get onto a list by accident.
func TestFilterKeepsOut(t *testing.T) {
	const never = `socket connect bind listen accept accept4 sendmsg recvmsg sendmmsg recvmmsg setsockopt
fork vfork execve execveat ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd
pidfd_send_signal mount umount2 pivot_root chroot unshare setns fsopen fsmount fsconfig fspick open_tree move_mount
mount_setattr bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register io_setup io_submit
keyctl add_key request_key init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
acct quotactl syslog settimeofday clock_settime adjtimex clock_adjtime iopl ioperm modify_ldt personality
open_by_handle_at name_to_handle_at fanotify_init fanotify_mark inotify_init inotify_init1 seccomp
landlock_create_ruleset landlock_restrict_self memfd_create memfd_secret shmget shmat semget msgget mq_open
splice tee vmsplice sendfile copy_file_range linkat mknod mknodat setuid setgid setresuid setresgid setgroups
capset setpriority sched_setscheduler sched_setattr sched_setaffinity set_mempolicy mbind migrate_pages move_pages
mincore cachestat fadvise64 flock vhangup sethostname setdomainname lookup_dcookie remap_file_pages uselib
setsid setpgid timer_create rt_sigqueueinfo rt_tgsigqueueinfo mlock mlockall setxattr nfsservctl statmount listmount`
	m := newMachine(t, policy{inside: true})
	for _, name := range strings.Fields(never) {
		if _, ok := m.info.SyscallNames[name]; !ok {
			continue
		}
		if got := m.call(name); got != refuse {
			t.Errorf("%s: got %#x, want %#x", name, got, refuse)
		}
	}
	for _, name := range strings.Fields(allowedInside) {
		if got := newMachine(t, policy{}).call(name); got != refuse {
			t.Errorf("%s without namespaces: got %#x, want %#x", name, got, refuse)
		}
	}
}

// TestFilterIsShort guards what a call pays: the tree is a third of a list.
func TestFilterIsShort(t *testing.T) {
	text, err := filterHex(policy{inside: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(text) / 16; n > 166 {
		t.Errorf("%d instructions, want at most 166", n)
	}
}

func TestFilterTooLongForItsJumps(t *testing.T) {
	var s searchTree
	for n := range uint32(200) {
		s.set(2*n, answerAllow)
	}
	if _, err := s.program(1, nil); err == nil || !strings.Contains(err.Error(), "above the limit of 250") {
		t.Errorf("got error %v", err)
	}
}

// BenchmarkInstallFilter installs the filter in fresh threads, as a call does.
func BenchmarkInstallFilter(b *testing.B) {
	text, err := filterHex(policy{inside: true, exec: true})
	if err != nil {
		b.Fatal(err)
	}
	raw, err := hex.DecodeString(text)
	if err != nil {
		b.Fatal(err)
	}
	program := unix.SockFprog{Len: uint16(len(raw) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	for b.Loop() {
		done := make(chan unix.Errno)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its filter
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				done <- unix.EPERM
				return
			}
			_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, 1, 0, uintptr(unsafe.Pointer(&program)))
			done <- errno
		}()
		if errno := <-done; errno != 0 {
			b.Fatal(errno)
		}
	}
}
