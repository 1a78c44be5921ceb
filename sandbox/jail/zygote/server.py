# The start of a zygote: finds out which layers hold, warms up, and enters the fork loop.


def trial(jail):
    """Enters the layers of a call one by one in a throw-away child and reports each."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        layers = jail.layers
        if jail.clone_flags:
            flags = jail.clone_flags & ~NEWPID  # that one has been tried
            layers.attempt("call_namespaces", lambda: check(libc.unshare(flags), "unshare"))
        for name, number, args, mask in jail.steps():
            known = layers.entries.get(name)
            if not name or known and not known["on"]:
                continue
            if name == "tmpfs" and not layers.on("call_namespaces"):
                layers.put(name, False, "needs a mount namespace for each call")
                continue
            layers.attempt(name, lambda: make(number, args, mask))
        os.write(w, json.dumps(list(layers.entries.values())).encode())
        os._exit(0)
    os.close(w)
    with open(r, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(pid, 0)
    if not answer:
        raise SystemExit("trial child ended with status %d" % status)
    for entry in json.loads(answer):
        jail.layers.put(**entry)
    for name in jail.cfg["without"] or ():
        jail.layers.put(name, False, "left out for a measurement")
    if not jail.layers.on("call_namespaces"):
        jail.clone_flags &= NEWPID
    if not jail.layers.on("pid_namespace"):
        jail.clone_flags &= ~NEWPID
    jail.arm()


def make(number, args, mask):
    """Makes the system call of one step."""
    words = [ctypes.c_uint64.from_address(a).value if mask >> i & 1 else a for i, a in enumerate(args)]
    check(syscall(number, *map(ctypes.c_long, words)), "system call %d" % number)


def prepare(cfg, layers):
    """Builds the zygote's jail and finds out which layers hold."""
    jail = Jail(cfg, layers)
    namespaces = cfg["mode"] != "plain"
    if namespaces:
        jail.clone_flags = NEWNS | NEWIPC | (NEWPID if layers.on("pid_namespace") else 0)
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
    try:
        place(landlock_ruleset(cfg["nr"], bool(cfg["exec"]), cfg["executables"] or ()), RULESET)
    except OSError as err:
        layers.put("landlock", False, str(err))
        place(os.open(os.devnull, os.O_RDONLY), RULESET)
    jail.load_filter(cfg["filter" if layers.on("pid_namespace") else "filter_plain"])
    jail.settle()
    block = jail.block
    block.put("uid", cfg["trial_uid"])
    block.put("cpu", 60, 60)
    block.put("memory", *[2**64 - 1] * 2)
    return jail


def place(fd, number):
    """Moves an open descriptor to number, where the fork loop expects it."""
    if fd != number:
        os.dup2(fd, number)
        os.close(fd)


def watch_children():
    """Makes the ends of children readable as a descriptor."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = struct.pack("=Q120x", 1 << signal.SIGCHLD - 1)
    place(check(libc.signalfd(-1, mask, 0), "signalfd"), SIGNALS)


def load_loop(code):
    """Returns the fork loop as a function; calling it keeps the interpreter's lock."""
    return ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(map_code(code))


def main():
    # Low numbers are the fork loop's; what is opened later may not get them.
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(RULESET, RECEIVED):
        os.dup2(null, number)
    cfg, layers, proc = arrive()
    maps = open(os.open("maps", os.O_RDONLY, dir_fd=proc))
    spaces = os.open("ns", os.O_RDONLY, dir_fd=proc) if cfg["mode"] == "root" else None
    os.close(proc)  # the root has none
    sys.path += [path for path in cfg["paths"] if path not in sys.path]
    sys.argv = [MAIN]
    sys.orig_argv = ["python3", MAIN]
    jail = prepare(cfg, layers)
    missing = preload(cfg["preload"])
    add_site_builtins()
    import linecache, traceback  # noqa: E401
    trial(jail)
    make_rooms(jail, spaces)
    watch_children()
    open_streams()
    log = os.dup(2)
    os.dup2(null, 2)
    warm_up()
    os.dup2(log, 2)
    loop = load_loop(bytes.fromhex(cfg["loop"]))
    sys.path.append("/tmp")
    adapt(cfg)
    fill_gaps()
    gather()
    rehearse(jail, 24)
    gc.collect()
    gc.disable()
    make_immortal()
    gc.freeze()
    arenas.trim()
    fill_gaps()
    if cfg["huge_pages"]:
        unite(maps, cfg)
        fill_gaps()
    rehearse(jail, 6)
    arenas.close()
    hello = {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "layers": list(jail.layers.entries.values()),
        "missing": missing,
    }
    os.closerange(RECEIVED, 256)
    os.write(CTL, b"H" + json.dumps(hello).encode())
    del hello
    failure = loop(jail.block.address)
    if failure < 0:
        os._exit(0)  # the owner is gone
    enter(jail, failure)


def enter(jail, failure, leave=os._exit):
    """Goes on in a child, whose layers hold unless failure says which does not."""
    block = jail.block
    if failure:
        jail.give_up(failure)
    elif KIND.unpack_from(block.memory, block.at["kind"])[0]:
        kernel(block.shared)
    else:
        child(block.shared, block.window, jail.cfg["exec"], leave)


KIND = struct.Struct("=Q")


main()
