"""Fork server: holds a warm interpreter and forks one confined child per call.

The parent speaks SEQPACKET on fd 3 (see wire.go for the packets), never runs or
even sees a program, and stays single-threaded. A child reads its program from a
memory file, locks itself in, runs, and leaves its result in the same memory file,
so neither a pipe nor a descriptor of ours is open while the program runs.
"""
import sys

sys.path[:] = [p for p in sys.path if p]  # -c puts the current directory first

import _socket
import builtins
import ctypes
import gc
import json
import mmap
import os
import resource
import select
import struct
import time

# A program may replace len or str in builtins; this file goes on with the originals.
globals().update({k: v for k, v in vars(builtins).items() if k[0] != "_"})

CTL = 3
NEWNS, NEWUTS, NEWIPC, NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
KEEP_FLAGS = NOSUID | NODEV | NOEXEC | 1024 | 2048  # statvfs bits equal to mount bits
HUGE = 2 << 20

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long


def check(result, what):
    """Raises OSError naming the call when a libc function answered -1."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, what + ": " + os.strerror(code))
    return result


def cstr(text):
    return text.encode() if text is not None else None


def mount(source, target, kind, flags, data=None):
    check(
        libc.mount(cstr(source), cstr(target), cstr(kind), ctypes.c_ulong(flags), cstr(data)),
        "mount " + target,
    )


class Layers:
    """What was tried, and whether it holds; one entry a name."""

    def __init__(self):
        self.entries = {}

    def put(self, name, on, reason=""):
        self.entries[name] = {"name": name, "on": on, "reason": reason}
        return on

    def attempt(self, name, action):
        try:
            action()
        except Exception as err:  # every failure is reported, none is fatal here
            return self.put(name, False, str(err))
        return self.put(name, True)

    def on(self, name):
        entry = self.entries.get(name)
        return bool(entry and entry["on"])


# ---- the zygote's own jail: built once -----------------------------------


def build_root(cfg):
    """Moves into a read-only root that holds only what python needs."""
    mount(None, "/", None, REC | PRIVATE)
    binds = [(b, os.open(b, os.O_PATH)) for b in cfg["binds"] if os.path.exists(b)]
    stage = next(d for d in ("/tmp", "/run", "/var", "/mnt") if os.path.isdir(d))
    mount("tmpfs", stage, "tmpfs", NOSUID | NODEV, "size=1m,nr_inodes=4096,mode=755")
    for path, target in cfg["symlinks"]:
        os.makedirs(os.path.dirname(stage + path), exist_ok=True)
        os.symlink(target, stage + path)
    for path, fd in binds:
        bind_one(fd, stage + path)
    for path, text in cfg["files"].items():
        os.makedirs(os.path.dirname(stage + path), exist_ok=True)
        with open(stage + path, "w") as out:
            out.write(text)
    os.makedirs(stage + "/tmp", exist_ok=True)
    os.chdir(stage)
    check(syscall(cfg["nr"]["pivot_root"], b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount old root")
    os.chdir("/")
    mount(None, "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    for _, fd in binds:
        os.close(fd)


def bind_one(fd, target):
    """Binds the open path read-only; a device node stays usable."""
    mode = os.fstat(fd).st_mode
    if mode & 0o170000 == 0o040000:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount("/proc/self/fd/%d" % fd, target, None, BIND)
    flags = os.fstatvfs(fd).f_flag & KEEP_FLAGS | RDONLY | NOSUID
    if mode & 0o170000 != 0o020000:
        flags |= NODEV
    mount(None, target, None, REMOUNT | BIND | flags)


def landlock_ruleset(nr, may_exec):
    """A ruleset without rules: it forbids what no program needs anywhere."""
    abi = syscall(nr["landlock_create_ruleset"], None, ctypes.c_size_t(0), ctypes.c_uint(1))
    check(abi, "landlock")
    execute, char, sock, fifo, block, refer, ioctl = 1, 1 << 6, 1 << 9, 1 << 10, 1 << 11, 1 << 13, 1 << 15
    fs = (0 if may_exec else execute) | char | sock | fifo | block
    fs |= (refer if abi >= 2 else 0) | (ioctl if abi >= 5 else 0)
    net = 3 if abi >= 4 else 0
    scoped = 3 if abi >= 6 else 0
    attr = struct.pack("=QQQ", fs, net, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    fd = syscall(nr["landlock_create_ruleset"], attr, ctypes.c_size_t(size), ctypes.c_uint(0))
    return check(fd, "landlock"), abi


def drop_bounding_set():
    for cap in range(64):
        if libc.prctl(24, cap, 0, 0, 0) < 0:  # PR_CAPBSET_DROP
            break


def preload(names):
    """Imports what programs usually import; returns what could not be."""
    missing = []
    register = os.register_at_fork
    # Modules such as random reseed themselves in each child, which costs time and
    # makes programs differ from run to run.
    os.register_at_fork = lambda **_: None
    for name in names:
        try:
            __import__(name)
        except Exception:
            missing.append(name)
    os.register_at_fork = register
    if "random" in sys.modules:
        sys.modules["random"].seed(0)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)
    return missing


def add_site_builtins():
    """What the site module would have added and programs do use."""
    import _sitebuiltins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def open_streams():
    """Text streams on fds 0-2, made once; a child only replaces the descriptors."""
    import io

    r, w = os.pipe()  # a pipe, so that nothing caches a seek position
    for fd, end in ((0, r), (1, w)):
        os.dup2(end, fd)

    def text(fd, mode, errors):
        raw = io.FileIO(fd, mode, closefd=False)
        buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        return io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=mode == "w")

    sys.stdin = sys.__stdin__ = text(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = text(1, "w", "surrogateescape")
    log = os.dup(2)
    os.dup2(w, 2)
    sys.stderr = sys.__stderr__ = text(2, "w", "backslashreplace")
    os.dup2(log, 2)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for fd in (r, w, log, null):
        os.close(fd)


# ---- the program ---------------------------------------------------------

MAIN, FIXTURE, OURS = "main.py", "<fixture>", "<zygote>"
MARK = "...(truncated)..."
FIELD_MAX = 16 << 10


class FixtureError(Exception):
    """The fixture itself failed: not the program's doing."""


def cut(text, limit):
    """Cuts the middle out of text so that it fits in limit bytes."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data
    return data[: limit // 2] + MARK.encode() + data[len(data) - limit // 2 :]


class Outcome:
    """What the program left: exit code, value, and its uncaught exception."""

    code = 0
    line = 0
    kind = 0  # 1 fixture failed, 2 out of memory
    value = etype = emsg = source = ""

    def pack(self, limit):
        fields = [cut(self.value, limit)]
        fields += [cut(f, FIELD_MAX) for f in (self.etype, self.emsg, self.source)]
        head = struct.pack("<iII4I", self.code, self.line, self.kind, *map(len, fields))
        return head + b"".join(fields)


def execute(code, fixture, space, out):
    """Runs fixture and code in space and notes the value of a last expression."""
    if fixture:
        try:
            exec(compile(fixture, FIXTURE, "exec", 0, True), space)
        except BaseException as err:
            raise FixtureError(type(err).__name__ + ": " + str(err)) from None
    tree = compile(code, MAIN, "exec", 0x400, True)
    last = None
    if tree.body and type(tree.body[-1]).__name__ == "Expr":
        last = tree.body.pop()
    flags = 0
    if tree.body:
        body = compile(tree, MAIN, "exec", 0, True)
        flags = body.co_flags & 0x1FF0000  # the __future__ features
        exec(body, space)
    if last is not None:
        import _ast

        value = eval(compile(_ast.Expression(last.value), MAIN, "eval", flags, True), space)
        if value is not None:
            out.value = scrub(repr(value))


def scrub(text):
    """Removes addresses, which differ from run to run."""
    if " at 0x" not in text:
        return text
    import re

    return re.sub(" at 0x[0-9a-fA-F]+", " at 0x0", text)


def plain_paths(text):
    """Shortens the interpreter's own directories, which differ between machines."""
    for path in sys.path:
        if len(path) > 4:
            text = text.replace('"' + path + "/", '"')
    return text


def prune(report, seen):
    """Drops the frames of this file and of the fixture from a report and its causes."""
    import traceback

    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    kept = [f for f in report.stack if f.filename not in (OURS, FIXTURE)]
    report.stack = traceback.StackSummary.from_list(kept)
    prune(report.__cause__, seen)
    prune(report.__context__, seen)
    for inner in getattr(report, "exceptions", None) or ():
        prune(inner, seen)


def describe(err, code, out):
    """Notes an uncaught exception in out; returns the traceback for standard error."""
    import linecache
    import traceback

    lines = code.splitlines()
    linecache.cache[MAIN] = (len(code), None, [l + "\n" for l in lines], MAIN)
    kind = type(err)
    module = kind.__module__
    out.etype = kind.__qualname__ if module in ("builtins", "__main__") else module + "." + kind.__qualname__
    out.emsg = scrub(str(err))
    tb = err.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == MAIN:
            out.line = tb.tb_lineno or 0
        tb = tb.tb_next
    if isinstance(err, SyntaxError) and err.filename == MAIN:
        out.line = err.lineno or 0
        out.emsg = err.msg or out.emsg
    if 0 < out.line <= len(lines):
        out.source = lines[out.line - 1]
    report = traceback.TracebackException(kind, err, err.__traceback__)
    prune(report, set())
    text = "".join(report.format())
    if not report.stack:
        text = text.replace("Traceback (most recent call last):\n", "", 1)
    return plain_paths(scrub(text))


def run_program(code, fixture):
    """Runs one program to its end and tells what came of it."""
    out = Outcome()
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    trace = ""
    try:
        try:
            execute(code, fixture, module.__dict__, out)
        finally:
            finish_threads()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            out.code = (end.code or 0) & 0xFF
        else:
            out.code, trace = 1, str(end.code) + "\n"
    except FixtureError as err:
        out.kind, out.code, out.emsg = 1, 1, scrub(str(err))
    except BaseException as err:
        out.code = 1
        out.kind = 2 if isinstance(err, MemoryError) else 0
        try:
            trace = describe(err, code, out)
        except BaseException:  # out of memory or stack while describing
            out.etype = out.etype or type(err).__name__
            trace = out.etype + "\n"
    flush(trace)
    return out


def finish_threads():
    """Does what the end of a program does: joins its threads, runs its exit hooks."""
    threading = sys.modules.get("threading")
    if threading is not None and len(threading._active) > 1:
        threading._shutdown()
    atexit = sys.modules.get("atexit")
    if atexit is not None and atexit._ncallbacks() != EXIT_HOOKS:
        atexit._run_exitfuncs()


EXIT_HOOKS = 0


def flush(trace):
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # closed or replaced by the program: its own affair
            pass
    data = trace.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


# ---- one call ------------------------------------------------------------


class Jail:
    """The layers around one child; prepared in the parent, entered in the child."""

    def __init__(self, cfg, layers):
        self.cfg, self.layers, self.nr = cfg, layers, cfg["nr"]
        self.ruleset = -1
        self.filter = self.keep = None
        self.unshare = 0
        self.caps = (ctypes.c_uint32 * 6)()
        self.caphead = (ctypes.c_uint32 * 2)(0x20080522, 0)

    def load_filter(self, text):
        raw = bytes.fromhex(text)
        self.keep = ctypes.create_string_buffer(raw, len(raw))
        self.filter = ctypes.create_string_buffer(
            struct.pack("@HP", len(raw) // 8, ctypes.addressof(self.keep)), 16
        )

    def settle(self):
        """Does once, in the parent, what children inherit."""
        for kind, value in self.cfg["rlimits"]:
            resource.setrlimit(kind, (value, value))
        self.tmpfs_options = cstr(
            "size=%d,nr_inodes=%d,mode=1777" % (self.cfg["tmp_bytes"], self.cfg["tmp_inodes"]))
        drop_bounding_set()
        self.layers.attempt("no_new_privs", lambda: check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs"))

    def namespaces(self):
        check(libc.unshare(self.unshare), "unshare")

    def tmpfs(self):
        flags = ctypes.c_ulong(NOSUID | NODEV | NOEXEC)
        check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", flags, self.tmpfs_options), "mount /tmp")

    def rlimits(self):
        files = self.cfg["open_files"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu, self.cpu))

    def become(self):
        uid = self.id
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    def drop_caps(self):
        check(syscall(self.nr["capset"], self.caphead, self.caps), "capset")

    def landlock(self):
        check(syscall(self.nr["landlock_restrict_self"], self.ruleset, 0), "landlock")

    def seccomp(self):
        check(syscall(self.nr["seccomp"], 1, 0, self.filter), "seccomp")

    def orphan(self):
        check(libc.prctl(1, 9, 0, 0, 0), "parent death signal")

    def close_fds(self):
        if syscall(self.nr["close_range"], 3, 0x7FFFFFFF, 0) < 0:
            os.closerange(3, 1024)

    def steps(self):
        """The layers of a call in the order in which they have to be entered."""
        return [
            ("call_namespaces", self.namespaces),
            ("tmpfs", self.tmpfs),
            ("landlock", self.landlock),
            ("rlimits", self.rlimits),
            ("uid", self.become),
            ("capabilities", self.drop_caps),
            ("parent_death", self.orphan),
            ("seccomp", self.seccomp),
        ]

    def arm(self):
        """Fixes what a call has to do, now that it is known which layers hold."""
        self.todo = [action for name, action in self.steps() if self.layers.on(name)]
        # The ruleset is a descriptor too: descriptors go once it has been used.
        at = self.todo.index(self.rlimits) if self.rlimits in self.todo else len(self.todo)
        self.todo.insert(at, self.close_fds)

    def enter(self, uid, memory, cpu):
        """Enters every layer that holds; one that fails now fails the call."""
        self.id, self.memory, self.cpu = uid, memory, cpu
        os.setsid()
        for action in self.todo:
            action()
        os.chdir("/tmp")


HEADER = struct.Struct("<IIIIB")


def child(jail, call, fds):
    """The forked child: never returns."""
    _, _, uid, cpu, memory = call
    status = 70
    try:
        memfd, out, err = fds[:3]
        if len(fds) > 3:
            os.dup2(fds[3], 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        shared = mmap.mmap(memfd, 0)
        fixture_len, code_len, result_at, limit, _ = HEADER.unpack_from(shared, 0)
        at = HEADER.size
        fixture = shared[at : at + fixture_len]
        code = shared[at + fixture_len : at + fixture_len + code_len]
        try:
            jail.enter(uid, memory, cpu)
        except BaseException as error:
            note = str(error).encode()[:1024]
            shared[result_at : result_at + len(note)] = note
            shared[HEADER.size - 1] = 3
            os._exit(status)
        shared[HEADER.size - 1] = 1
        if jail.cfg["exec"]:
            exec_python(jail.cfg["exec"], code)
        gc.enable()
        result = run_program(code.decode("utf-8", "replace"), fixture.decode("utf-8", "replace"))
        record = result.pack(limit)
        shared[result_at : result_at + len(record)] = record
        shared[HEADER.size - 1] = 2
        status = result.code
    finally:
        os._exit(status)


def exec_python(command, code):
    """The baseline of a benchmark: a fresh interpreter inside the same layers."""
    os.execve(command[0], command + ["-c", code], dict(os.environ))


class Server:
    """The loop of the parent: forks on request, reports starts and ends."""

    def __init__(self, sock, jail, pid_fd):
        self.sock, self.jail, self.pid_fd = sock, jail, pid_fd
        self.epoll = select.epoll()
        self.epoll.register(CTL, select.EPOLLIN)
        self.calls = {}  # pidfd -> (id, pid, start)

    def fork(self, call, fds):
        if self.pid_fd >= 0:
            check(libc.unshare(NEWPID), "unshare pid")
        try:
            pid = os.fork()
            if pid == 0:
                child(self.jail, call, fds)
        finally:
            if self.pid_fd >= 0:
                check(libc.setns(self.pid_fd, NEWPID), "setns pid")
        return pid

    def spawn(self, packet, fds):
        call = CALL.unpack(packet)
        try:
            start = time.monotonic_ns()
            pid = self.fork(call, fds)
            pidfd = os.pidfd_open(pid)
        except OSError as err:
            self.sock.send(struct.pack("<BI", ord("F"), call[1]) + str(err).encode())
            return
        self.epoll.register(pidfd, select.EPOLLIN)
        self.calls[pidfd] = (call[1], pid, start)
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", pidfd))]
        self.sock.sendmsg([struct.pack("<BI", ord("S"), call[1])], rights)

    def reap(self, pidfd):
        ident, pid, start = self.calls.pop(pidfd)
        self.epoll.unregister(pidfd)
        os.close(pidfd)
        _, status, used = os.wait4(pid, 0)
        wall = time.monotonic_ns() - start
        cpu = int((used.ru_utime + used.ru_stime) * 1e9)
        self.sock.send(EXIT.pack(ord("X"), ident, status, wall, cpu, used.ru_maxrss))

    def serve(self):
        while True:
            for fd, _ in self.epoll.poll():
                if fd != CTL:
                    self.reap(fd)
                    continue
                packet, control, _, _ = self.sock.recvmsg(64, 64)
                if not packet:
                    return
                fds = []
                for _, _, data in control:
                    fds += struct.unpack("%di" % (len(data) // 4), data)
                self.spawn(packet, fds)
                for passed in fds:
                    os.close(passed)


CALL = struct.Struct("<BIIIQ")
EXIT = struct.Struct("<BIiQQQ")


def trial(jail):
    """Enters the layers of a call one by one in a throw-away child and reports each."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        lines = []
        failed = {n for n, e in jail.layers.entries.items() if not e["on"]}
        jail.id, jail.memory, jail.cpu = jail.cfg["trial_uid"], resource.RLIM_INFINITY, 60
        for name, action in jail.steps():
            if name in failed:
                continue
            if name == "tmpfs" and "call_namespaces" in failed:
                lines.append([name, False, "needs a mount namespace for each call"])
                continue
            try:
                action()
                lines.append([name, True, ""])
            except Exception as err:
                failed.add(name)
                lines.append([name, False, str(err)])
        os.write(w, json.dumps(lines).encode())
        os._exit(0)
    os.close(w)
    with open(r, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(pid, 0)
    if not answer:
        raise SystemExit("trial child ended with status %d" % status)
    for name, on, reason in json.loads(answer):
        jail.layers.put(name, on, reason)
    jail.arm()


def prepare(cfg):
    """Builds the zygote's jail and finds out which layers hold."""
    layers = Layers()
    jail = Jail(cfg, layers)
    pid_fd = -1
    namespaces = cfg["mode"] != "plain"
    if namespaces:
        pid_fd = os.open("/proc/self/ns/pid", os.O_RDONLY)
        layers.attempt("pid_namespace", lambda: trial_pid(pid_fd))
        layers.attempt("root", lambda: build_root(cfg))
        jail.unshare = NEWNS | NEWIPC
        layers.put("network", True)
        libc.sethostname(b"sandbox", 7)  # our own namespace; the name is decoration
    else:
        for name in ("pid_namespace", "root", "network", "call_namespaces", "tmpfs"):
            layers.put(name, False, "no namespaces: " + cfg["mode_reason"])
    if namespaces and not layers.on("root"):
        layers.put("tmpfs", False, "needs the private root")
        os.chdir("/")
    if cfg["mode"] != "root" and os.getuid() != 0 or cfg["mode"] == "user":
        layers.put("uid", False, "one uid only: started by an ordinary user")
    if not layers.on("pid_namespace"):
        pid_fd = -1
    try:
        jail.ruleset, abi = landlock_ruleset(cfg["nr"], bool(cfg["exec"]))
    except OSError as err:
        layers.put("landlock", False, str(err))
    jail.load_filter(cfg["filter"] if pid_fd >= 0 else cfg["filter_plain"])
    jail.settle()
    return jail, pid_fd


def trial_pid(pid_fd):
    check(libc.unshare(NEWPID), "unshare pid")
    check(libc.setns(pid_fd, NEWPID), "setns pid")


def warm_up():
    """Runs typical programs once, so that a child finds every cache filled."""
    global EXIT_HOOKS
    import atexit

    for module, programs in WARM.items():
        if module in sys.modules:
            for code in programs:
                run_program(code, "fixture_value = 1\n").pack(1024)
    import linecache

    linecache.clearcache()
    sys.modules.pop("__main__", None)
    EXIT_HOOKS = atexit._ncallbacks()


WARM = {
    "builtins": (
        "print(1+1)\n",
        "x = [i*i for i in range(3)]\nx\n",
        "def f():\n    return 1/0\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    print(e)\n",
        "import math\nmath.sqrt(2)\n",
        "class A:\n    pass\nprint(f'{1.5:.2f}', sorted({3: 1}.items()))\n",
        "1/0\n",
        "x = (\n",
    ),
    "numpy": (
        "import numpy as np\nprint(np.linalg.det(np.eye(3)), np.arange(6).reshape(2, 3).sum(axis=0))\n",
        "import numpy as np\nnp.random.default_rng(0).normal(size=3)\n",
    ),
    "sympy": (
        "from sympy import *\nx, y = symbols('x y')\nprint(solve(x**2 - 4, x), solve([x + y - 3, x - y - 1], [x, y]))\n",
        "from sympy import *\nx = symbols('x')\nprint(integrate(x*sin(x), x), diff(exp(x)*x, x), limit(sin(x)/x, x, 0))\n",
        "from sympy import *\nx = symbols('x')\nprint(factor(x**3 - 1), expand((x + 1)**4), simplify(sin(x)**2 + cos(x)**2))\n",
        "from sympy import *\nprint(Matrix([[1, 2], [3, 4]]).inv(), Rational(1, 3) + 1, N(pi, 20), latex(sqrt(2)))\n",
        "from sympy import *\nprint(factorint(360), isprime(97), gcd(12, 18), binomial(10, 3), nsimplify(0.5))\n",
    ),
}


def collapse_heap(maps_fd):
    """Moves the anonymous memory into huge pages, which makes a fork cheaper."""
    spans = []
    with open(maps_fd) as maps:
        for line in maps:
            parts = line.split()
            if parts[1].startswith("rw-p") and (len(parts) < 6 or parts[5] == "[heap]"):
                lo, hi = (int(x, 16) for x in parts[0].split("-"))
                spans.append((-(-lo // HUGE) * HUGE, hi // HUGE * HUGE))
    for lo, hi in spans:
        if hi > lo:
            libc.madvise(ctypes.c_void_p(lo), ctypes.c_size_t(hi - lo), 14)
            libc.madvise(ctypes.c_void_p(lo), ctypes.c_size_t(hi - lo), 25)


def main():
    sock = _socket.socket(fileno=CTL)
    cfg = json.loads(sock.recv(1 << 20))
    sys.path += cfg["paths"]
    sys.argv = [MAIN]
    sys.orig_argv = ["python3", MAIN]
    maps = os.open("/proc/self/maps", os.O_RDONLY)
    jail, pid_fd = prepare(cfg)
    missing = preload(cfg["preload"])
    add_site_builtins()
    import linecache, traceback  # noqa: E401
    trial(jail)
    open_streams()
    null = os.open(os.devnull, os.O_WRONLY)
    log = os.dup(2)
    os.dup2(null, 2)
    warm_up()
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    sys.path.append("/tmp")
    gc.collect()
    gc.disable()
    gc.freeze()
    if cfg["huge_pages"]:
        collapse_heap(maps)
    else:
        os.close(maps)
    hello = {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "layers": list(jail.layers.entries.values()),
        "missing": missing,
    }
    sock.send(b"H" + json.dumps(hello).encode())
    Server(sock, jail, pid_fd).serve()


main()
