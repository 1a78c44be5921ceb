# The parent: finds out which layers hold, forks on request, reports starts and ends.

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
                (kernel if call[0] == KERNEL else child)(self.jail, call, fds)
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
