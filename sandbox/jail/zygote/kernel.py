# A kernel: a child that goes on after its first cell. See kernel.go for the memory.

# All that the descriptor BELL carries is "your turn".
ROOM = 128 << 10  # of the answer; the cell follows
ANSWER = struct.Struct("<II")  # stage, number of the cell
CELL = struct.Struct("<IIII")  # number, kind, bytes of code, limit of the value
FIXTURE_CELL = 1


def kernel(shared, leave=os._exit):
    """The forked child: never returns, not even where a program replaces os._exit."""
    try:
        gc.enable()
        Kernel(shared).serve()
    finally:
        leave(70)


class Kernel:
    """Runs the cells that its owner puts into the shared memory, one at a time.

    A program may replace whatever it finds in os or sys, so what the loop needs
    later is kept from the start.
    """

    def __init__(self, shared):
        self.shared = shared
        self.read, self.write, self.seek, self.exit = os.read, os.write, os.lseek, os._exit
        self.blocking, self.would_block = os.set_blocking, BlockingIOError
        self.stdin = sys.stdin
        self.done = 0  # cells, without fixtures
        module = type(sys)("__main__")
        module.__builtins__ = builtins
        sys.modules["__main__"] = module
        self.space = module.__dict__

    def serve(self):
        ANSWER.pack_into(self.shared, 0, 1, 0)
        self.write(BELL, b"r")
        failures, taken, record = 0, False, None
        while failures < 8:
            # A signal handler of the program may raise anywhere in this loop.
            try:
                if record is None:
                    taken = bool(self.read(BELL, 1))
                    if not taken:
                        self.exit(0)
                    number, record = self.cell()
                at = ANSWER.size
                self.shared[at : at + len(record)] = record
                ANSWER.pack_into(self.shared, 0, 2, number)
                self.write(BELL, b"d")
                failures, taken, record = 0, False, None
            except BaseException as err:
                if taken and record is None:  # the cell is lost, and nobody waits for it
                    self.exit(70)
                failures += 1
                if isinstance(err, self.would_block):
                    self.blocking(BELL, True)  # a cell has changed it

    def cell(self):
        """Runs the cell that lies in the memory; returns its number and its record."""
        number, kind, size, limit = CELL.unpack_from(self.shared, ROOM)
        at = ROOM + CELL.size
        code = bytes(self.shared[at : at + size]).decode("utf-8", "replace")
        return number, self.run(code, kind).pack(limit)

    def run(self, code, kind):
        out = Outcome()
        trace = ""
        name = FIXTURE
        if kind != FIXTURE_CELL:
            self.done += 1
            name = "cell-%d.py" % self.done
        try:
            self.fresh_stdin()
            if kind == FIXTURE_CELL:
                execute("", code, self.space, out)
            else:
                remember(name, code)
                value = execute(code, "", self.space, out, name)
                if value is not None:
                    builtins._ = value
        except BaseException as err:
            trace = settle(err, code, out, name).replace('"%s"' % name, '"%s"' % MAIN)
        self.flush(trace)
        return out

    def flush(self, trace):
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BaseException:  # closed or replaced by the program: its own affair
                pass
        data = trace.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[self.write(2, data) :]
        except OSError:
            pass

    def fresh_stdin(self):
        """Starts at the beginning of what the owner put there for this cell."""
        try:
            self.seek(0, 0, 0)
        except OSError:  # closed by the program: its own affair
            return
        if sys.stdin is self.stdin:
            import io

            raw = io.FileIO(0, "r", closefd=False)
            stream = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")
            sys.stdin = sys.__stdin__ = self.stdin = stream


def remember(name, code):
    """Keeps the source of a cell for tracebacks that later cells cause in it."""
    import linecache

    try:
        lines = [line + "\n" for line in code.splitlines()]
        linecache.cache[name] = (len(code), None, lines, name)
    except Exception:  # replaced by the program: its own affair
        pass
