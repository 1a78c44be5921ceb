# The program: runs in the child and notes what came of it.

from marshal import loads as unmarshal

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


ENDED = 256  # a record with it is complete


class Outcome:
    """What the program left: exit code, value, and its uncaught exception."""

    code = 0
    line = 0
    kind = 0  # 1 fixture failed, 2 out of memory
    value = etype = emsg = source = ""

    def pack(self, limit):
        fields = [cut(self.value, limit)]
        fields += [cut(f, FIELD_MAX) for f in (self.etype, self.emsg, self.source)]
        head = struct.pack("<iII4I", self.code, self.line, self.kind | ENDED, *map(len, fields))
        return head + b"".join(fields)


def execute(code, fixture, space, out, name="main.py", seal=None, preamble=b""):
    """Runs fixture and code in space; notes and returns the value of a last expression.

    Between the two, seal is told that the program starts: see child."""
    if fixture:
        try:
            exec(compile(fixture, FIXTURE, "exec", 0, True), space)
        except BaseException as err:
            raise FixtureError(type(err).__name__ + ": " + str(err)) from None
        if seal:
            seal(1)
    head, flags, tree = divide(code, name, preamble)
    last = None
    if tree.body and type(tree.body[-1]).__name__ == "Expr":
        last = tree.body.pop()
    if tree.body:
        body = compile(tree, name, "exec", flags, True)
        flags |= body.co_flags & FEATURES
    else:
        body = None
    for part in (head, body):
        if part is not None:
            exec(part, space)
    if last is None:
        return None
    import _ast

    value = eval(compile(_ast.Expression(last.value), name, "eval", flags, True), space)
    if value is not None:
        out.value = scrub(repr(value))
    return value


FEATURES, ONLY_TREE = 0x1FF0000, 0x400  # flags of compile: __future__ features; no code
CLAUSES = ("else", "elif", "except", "finally", "case", "from", "global")


def divide(code, name, preamble=b""):
    """Compiles code but for its last lines: returns what is compiled, if anything, the
    __future__ features in force, and the tree of the rest.

    Only the last statement matters for the value, and a tree of objects costs several
    times what compiling does. Where the text of the last line that starts at the margin
    is a statement of its own, and all before it is as well, nothing goes across.

    A preamble is the number of bytes at the start of code that have been compiled already,
    then their code: see preamble.go.
    """
    if preamble:
        at = len(code.encode("utf-8", "replace")[: int.from_bytes(preamble[:4], "little")].decode("utf-8", "replace"))
        parts = split(code, name, at, preamble[4:])
        if parts:
            return parts
    at = code.rfind("\n", 0, len(code.rstrip()))
    while at >= 0 and code[at + 1 : at + 2] in " \t\f\r\n#)]}\"'":
        at = code.rfind("\n", 0, at)
    parts = split(code, name, at + 1) if at >= 0 else None
    return parts or (None, 0, compile(code, name, "exec", ONLY_TREE, True))


def split(code, name, at, compiled=None):
    """Divides code at a place, whose text before it may have been compiled already;
    returns nothing when that would change what it means, or when it means nothing."""
    if "global" in code[at:] or code.startswith(CLAUSES, at):
        return None
    try:
        if compiled:
            head = unmarshal(compiled)
        else:
            head = compile(code[:at], name, "exec", 0, True)
        flags = head.co_flags & FEATURES
        rest = "\n" * code.count("\n", 0, at) + code[at:]
        return head, flags, compile(rest, name, "exec", ONLY_TREE | flags, True)
    except (SyntaxError, ValueError):
        return None  # of the whole, or of where it was divided


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


def describe(err, code, out, name):
    """Notes an uncaught exception in out; returns the traceback for standard error."""
    import linecache
    import traceback

    lines = code.splitlines()
    linecache.cache[name] = (len(code), None, [l + "\n" for l in lines], name)
    kind = type(err)
    module = kind.__module__
    out.etype = kind.__qualname__ if module in ("builtins", "__main__") else module + "." + kind.__qualname__
    out.emsg = scrub(str(err))
    tb = err.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == name:
            out.line = tb.tb_lineno or 0
        tb = tb.tb_next
    if isinstance(err, SyntaxError) and err.filename == name:
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


def settle(err, code, out, name):
    """Notes in out how a program ended that did not run to its last line; returns
    what goes to standard error."""
    if isinstance(err, SystemExit):
        if err.code is None or isinstance(err.code, int):
            out.code = (err.code or 0) & 0xFF
            return ""
        out.code = 1
        return str(err.code) + "\n"
    out.code = 1
    if isinstance(err, FixtureError):
        out.kind, out.emsg = 1, scrub(str(err))
        return ""
    out.kind = 2 if isinstance(err, MemoryError) else 0
    try:
        return describe(err, code, out, name)
    except BaseException:  # out of memory or stack while describing
        out.etype = out.etype or type(err).__name__
        return out.etype + "\n"


def run_program(code, fixture, seal=None, preamble=b""):
    """Runs one program to its end and tells what came of it."""
    out = Outcome()
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    trace = ""
    try:
        try:
            execute(code, fixture, module.__dict__, out, MAIN, seal, preamble)
        finally:
            finish_threads()
    except BaseException as err:
        trace = settle(err, code, out, MAIN)
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
