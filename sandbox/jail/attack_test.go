package jail_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// attack is a program that tries to get out, to hurt others or to deceive.
type attack struct {
	name   string
	code   string
	stdin  string
	limits sandbox.Limits
	status sandbox.Status // ok when empty
	or     sandbox.Status // where kernels or interpreters differ; see whatever
	stdout string         // exactly, unless has or any is set
	any    bool           // any output
	has    string         // part of stdout, stderr or reason
	needs  string         // a layer beyond those that every row needs
	amd64  bool           // has system call numbers or machine code
}

// whatever, as an attack's or, takes any outcome but those that blame the caller or
// the sandbox: a program must not be able to bring them about.
const whatever sandbox.Status = "whatever"

// Limits of an attack that does not set its own: tight ones keep the table fast.
var tight = sandbox.Limits{Wall: 30 * time.Second, CPU: 3 * time.Second, Memory: 512 << 20}

// Limits of attacks that end by a limit.
var (
	spins  = sandbox.Limits{Wall: 30 * time.Second, CPU: 200 * time.Millisecond, Memory: 512 << 20}
	sleeps = sandbox.Limits{Wall: 300 * time.Millisecond, CPU: 3 * time.Second, Memory: 512 << 20}
	small  = sandbox.Limits{Wall: 30 * time.Second, CPU: 3 * time.Second, Memory: 128 << 20}
)

// lib makes system calls by number: sc answers the errno, or "done".
const lib = `
import ctypes, errno, os
l = ctypes.CDLL(None, use_errno=True)
l.syscall.restype = ctypes.c_long
def sc(n, *args):
    ctypes.set_errno(0)
    r = l.syscall(ctypes.c_long(n), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return 'done' if r >= 0 else ctypes.get_errno()
def code(b):
    import mmap
    global page
    page = mmap.mmap(-1, 4096, prot=7)
    page[:len(b)] = b
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
`

// victim is what runs beside the attacks; it would notice a signal, a stolen or
// planted file, and a changed module.
var victim = sandbox.Request{
	Code: `import threading, time
with open('/tmp/mine', 'w') as f: f.write('mine')
t = threading.Thread(target=time.sleep, args=(0.05,)); t.start()
total = sum(range(1000)); t.join()
import os
print(total, os.listdir('/tmp'), open('/tmp/mine').read(), input())`,
	Stdin:  "line\n",
	Limits: sandbox.Limits{Wall: 20 * time.Second, CPU: 10 * time.Second, Memory: 256 << 20},
}

const victimSays = "499500 ['mine'] mine line\n"

// fingerprint describes what a program finds; it must not change by what ran before.
var fingerprint = sandbox.Request{Code: `import builtins, gc, os, signal, sys, threading
def shape(m): return sorted((k, type(v).__name__) for k, v in vars(m).items() if k != '_')
print(os.listdir('/tmp'), sorted(os.environ.items()), os.getcwd(), os.umask(0o22), sys.argv, sys.path)
print(sorted(sys.modules), sys.getrecursionlimit(), threading.active_count(), gc.isenabled(), gc.get_threshold())
print(shape(builtins), shape(sys), shape(os), [str(signal.getsignal(s)) for s in range(1, 32)])
import json, math, random
print(json.dumps([math.pi, random.random()]), sys.stdin.read(), [os.fstat(f).st_mode & 0o170000 for f in range(3)])
for fd in range(3, 64):
    try: os.fstat(fd); print('open', fd)
    except OSError: pass`}

// wave is how many attacks run at once; what they leave is looked for after each.
const wave = 16

func TestAttacks(t *testing.T) {
	j, in := open(t, jail.Config{Heavy: []string{}})
	for _, name := range []string{
		"pid_namespace", "root", "network", "call_namespaces", "tmpfs", "no_new_privs",
		"rlimits", "capabilities", "seccomp",
	} {
		needLayer(t, j, name)
	}
	table := slices.Concat(processAttacks(), memoryAttacks(), outputAttacks(), fileAttacks(), kernelAttacks(), pythonAttacks())
	if len(table) < 100 {
		t.Errorf("%d attacks, want at least 100", len(table))
	}
	w := newWitness(t, j, in)
	for batch := range slices.Chunk(table, wave) {
		over := make(chan struct{})
		var all, victims sync.WaitGroup
		for range 2 {
			victims.Go(func() { w.suffer(t, over) })
		}
		for _, a := range batch {
			all.Go(func() { t.Run(a.name, func(t *testing.T) { w.attack(t, j, a) }) })
		}
		all.Wait()
		close(over)
		victims.Wait()
		w.nothingLeft(t, batch)
	}
}

// needLayer skips a test whose layer does not hold here, and says so; with
// TEMPER_REQUIRE_JAIL=all it fails instead.
func needLayer(t *testing.T, j *jail.Jail, name string) {
	t.Helper()
	for _, l := range j.Report().Off() {
		if l.Name == name {
			missing(t, "layer "+name+" is off: "+l.Reason)
		}
	}
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("TEMPER_REQUIRE_JAIL") == "all" {
		t.Fatal(why)
	}
	t.Skip("NOT TESTED, " + why)
}

// witness knows the state before the attacks.
type witness struct {
	in     *jail.Interpreter
	zygote int
	clean  string
	state  string
	dirs   []string
}

func newWitness(t *testing.T, j *jail.Jail, in *jail.Interpreter) *witness {
	t.Helper()
	res := run(t, in, fingerprint)
	if res.Status != sandbox.StatusOK {
		t.Fatalf("fingerprint: %+v", res)
	}
	w := &witness{in: in, zygote: in.PIDs()[0], clean: res.Stdout, dirs: j.CgroupDirs()}
	w.state = w.look(t)
	return w
}

// suffer runs one victim after the other beside a wave of attacks.
func (w *witness) suffer(t *testing.T, over <-chan struct{}) {
	for {
		got, err := w.in.Run(t.Context(), victim)
		if err != nil || got.Status != sandbox.StatusOK || got.Stdout != victimSays {
			t.Errorf("a victim: %+v %v", got, err)
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// attack runs one row, then looks at what the next call finds.
func (w *witness) attack(t *testing.T, j *jail.Jail, a attack) {
	if a.needs != "" {
		needLayer(t, j, a.needs)
	}
	if a.amd64 && runtime.GOARCH != "amd64" {
		missing(t, "has machine code of amd64")
	}
	req := sandbox.Request{Code: a.code, Stdin: a.stdin, Limits: cmp.Or(a.limits, tight)}
	res, err := w.in.Run(t.Context(), req)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	a.judge(t, res)
	if got := run(t, w.in, fingerprint); got.Stdout != w.clean {
		t.Errorf("the next call ends with %s (%s) and finds\n%s%s\nwant\n%s", got.Status, got.Reason, got.Stdout, got.Stderr, w.clean)
	}
}

func (a attack) judge(t *testing.T, res sandbox.Result) {
	t.Helper()
	want := cmp.Or(a.status, sandbox.StatusOK)
	good := res.Status == want || a.or != "" && res.Status == a.or
	if a.or == whatever {
		good = res.Status != sandbox.StatusRefused && res.Status != sandbox.StatusInternal
	}
	if !good {
		t.Errorf("got status %s, want %s %s: %s\n%.600s\n%.600s", res.Status, want, a.or, res.Reason, res.Stdout, res.Stderr)
		return
	}
	text := res.Stdout + res.Stderr + res.Reason
	if !strings.Contains(text, a.has) {
		t.Errorf("got %.600q, want it to hold %q", text, a.has)
	}
	if a.has == "" && !a.any && res.Stdout != a.stdout {
		t.Errorf("got %.600q, want %q\n%.600s", res.Stdout, a.stdout, res.Stderr)
	}
	if most := 70 << 10; len(res.Stdout) > most || len(res.Stderr) > most || len(res.Value) > most {
		t.Errorf("output of %d and %d bytes, value of %d", len(res.Stdout), len(res.Stderr), len(res.Value))
	}
	limits := cmp.Or(a.limits, tight)
	// The slack is for a loaded machine, where waits for a core do not count; a program
	// that outwits a limit runs on.
	if res.Usage.CPU > limits.CPU+2*time.Second || res.Usage.Wall > limits.Wall+34*time.Second {
		t.Errorf("used %+v under the limits %+v", res.Usage, limits)
	}
}

// look lists what could outlive a call: the children of the zygote, the mounts it
// sees, the processes of its cgroup, and files outside.
func (w *witness) look(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	fmt.Fprintln(&b, "children:", strings.TrimSpace(read(fmt.Sprintf("/proc/%d/task/%d/children", w.zygote, w.zygote))))
	fmt.Fprintln(&b, "processes:", strangers(t, w.zygote))
	fmt.Fprintln(&b, read(fmt.Sprintf("/proc/%d/mountinfo", w.zygote)))
	for _, dir := range w.dirs {
		fmt.Fprintln(&b, dir, strings.Fields(read(dir+"/cgroup.procs")))
		inside, err := filepath.Glob(dir + "/*/cgroup.procs")
		fmt.Fprintln(&b, inside, err)
	}
	files, err := filepath.Glob("/dev/shm/*")
	fmt.Fprintln(&b, files, err)
	fmt.Fprintln(&b, names(t, "/tmp", "escaped"), names(t, "/", "escaped"))
	return b.String()
}

// nothingLeft compares that with the state at the start.
func (w *witness) nothingLeft(t *testing.T, batch []attack) {
	t.Helper()
	if got := w.in.PIDs(); len(got) != 1 || got[0] != w.zygote {
		t.Fatalf("zygote %d became %v", w.zygote, got)
	}
	got := w.look(t)
	// Rooms that programs wrote in are renewed after the answer.
	for deadline := time.Now().Add(5 * time.Second); got != w.state && time.Now().Before(deadline); got = w.look(t) {
		time.Sleep(10 * time.Millisecond)
	}
	if got != w.state {
		t.Errorf("after the attacks %q to %q\n%swas\n%s", batch[0].name, batch[len(batch)-1].name, got, w.state)
	}
}

// strangers lists the processes in the pid namespaces below the zygote's: whatever
// its parent is by now, a program's process keeps its namespace.
func strangers(t *testing.T, zygote int) []int {
	t.Helper()
	level := func(pid int) []string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if errors.Is(err, os.ErrNotExist) || len(text) == 0 {
			return nil // ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.Fields(line)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	deepest := len(level(zygote))
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == zygote {
			continue
		}
		if len(level(pid)) > deepest && descends(pid, zygote) {
			found = append(found, pid)
		}
	}
	return found
}

// descends reports whether a chain of parents leads from pid to ancestor.
func descends(pid, ancestor int) bool {
	for pid > 1 {
		if pid == ancestor {
			return true
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(text)[strings.LastIndexByte(string(text), ')'):], " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return false
		}
	}
	return false
}

// names lists the entries of dir that start with prefix.
func names(t *testing.T, dir, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			found = append(found, e.Name())
		}
	}
	return found
}
