package jail_test

import (
	"strings"

	"temper/sandbox"
)

// outputAttacks flood or forge what their caller reads.
func outputAttacks() []attack {
	const flood = sandbox.StatusOutputLimit
	return []attack{
		{name: "flood of output", status: flood, has: "wrote more than 1048576 bytes", code: "while True: print('x' * 10000)"},
		{name: "flood of errors", status: flood, has: "wrote more than", code: "import os\nwhile True: os.write(2, b'x' * 10000)"},
		{name: "flood of both", status: flood, has: "wrote more than", code: "import os\nwhile True: os.write(1, b'x' * 1000); os.write(2, b'y' * 1000)"},
		{name: "one huge write", status: flood, has: "wrote more than", code: "print('x' * (100 << 20))"},
		{name: "one byte at a time", status: sandbox.StatusTimeLimit, or: flood, limits: spins, any: true, code: "import os\nwhile True: os.write(1, b'x')"},
		{name: "flood by a warning", status: flood, or: sandbox.StatusError, any: true, code: "import sys\nwhile True: sys.stderr.write('w' * 9999)"},
		{name: "output that does not block", any: true, code: "import os\nos.set_blocking(1, False)\nn = 0\ntry:\n    while n < 600000: n += os.write(1, b'x' * 1000)\nexcept BlockingIOError: pass"},
		{name: "invalid text", code: `import os
os.write(1, b'\xff\xfe\x00ok\xc3\n')`, stdout: "\uFFFD\x00ok\uFFFD\n"},
		{name: "terminal controls", code: `print('\x1b[2J\x07\r')`, stdout: "\x1b[2J\x07\r\n"},
		{name: "marks of other judges", code: "print('@@E\\n@@S 0\\n{\"status\": \"internal\"}')", stdout: "@@E\n@@S 0\n{\"status\": \"internal\"}\n"},
		{name: "our own mark", code: "print('a...(truncated)...b')", stdout: "a...(truncated)...b\n"},
		{name: "closed streams", any: true, code: "import os\nos.closerange(0, 64)"},
		{name: "closed objects", any: true, code: "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__): s.close()"},
		{name: "streams gone", any: true, code: "import sys\nsys.stdout = sys.stderr = sys.stdin = None\n1 / 0", status: sandbox.StatusError},
		{name: "streams that raise", any: true, code: `import sys
class S:
    def __getattr__(self, name): raise SystemExit(7)
sys.stdout = sys.stderr = S()`},
		{name: "swapped streams", code: `import os
os.dup2(1, 63); os.dup2(2, 1); os.dup2(63, 2); os.dup2(1, 0)
os.write(2, b'out'); os.write(1, b'err')
try: os.write(0, b'!')
except OSError: pass`, stdout: "out"},
		{name: "forged packets on every descriptor", any: true, code: `import os, struct
for fd in range(0, 1024):
    for op in b'HCSFX':
        try: os.write(fd, struct.pack('<BIiQQQ', op, 1, 0, 0, 0, 0))
        except OSError: pass`},
		{name: "descriptors", code: "import os\nfor fd in range(3, 64):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"},
		{name: "huge value", any: true, code: "'x' * (10 << 20)"},
		{name: "value that never ends", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `class A:
    def __repr__(self):
        while True: pass
A()`},
		{name: "value that prints", status: flood, has: "wrote more than", code: `class A:
    def __repr__(self):
        while True: print('x' * 9999)
A()`},
		{name: "value that is none", status: sandbox.StatusError, has: "TypeError", code: "class A:\n    def __repr__(self): return 5\nA()"},
		{name: "value that leaves", status: sandbox.StatusError, any: true, code: "class A:\n    def __repr__(self): raise SystemExit(3)\nA()"},
		{name: "error without words", status: sandbox.StatusError, any: true, code: `class E(Exception):
    def __str__(self): raise ValueError
    __repr__ = __str__
raise E`},
		{name: "error that never ends", limits: spins, status: sandbox.StatusTimeLimit, has: "cpu time", code: `class E(Exception):
    def __str__(self):
        while True: pass
raise E`},
		{name: "error that floods", status: sandbox.StatusError, or: flood, any: true, code: "raise ValueError('x' * (20 << 20))"},
		{name: "error of another class", status: sandbox.StatusError, any: true, code: `class E(Exception):
    __class__ = property(lambda self: SystemExit)
    __name__ = 5
E.__qualname__ = 'ok'; E.__module__ = 'x' * 100
raise E`},
		{name: "error in a circle", status: sandbox.StatusError, any: true, code: `a, b = ValueError('a'), ValueError('b')
a.__cause__, b.__cause__ = b, a
a.__context__, b.__context__ = b, a
raise a`},
		{name: "error without a trace", status: sandbox.StatusError, any: true, code: `import sys
class E(Exception):
    def __setattr__(self, n, v): raise SystemError
    def with_traceback(self, tb): raise SystemError
sys.excepthook = sys.unraisablehook = None
raise E from ExceptionGroup('g', [E()])`},
		{name: "hostile names of sources", status: sandbox.StatusError, any: true, code: `exec(compile('1 / 0', '/etc/shadow', 'exec'), {'__name__': '\n@@E', '__loader__': 5, '__spec__': 6})`},
		{name: "lines that lie", status: sandbox.StatusError, any: true, code: `import linecache
linecache.cache['main.py'] = (1, None, ['print(0)\n'] * 9999, 'main.py')
linecache.getline = linecache.checkcache = lambda *a: 1 / 0
1 / 0`},
		{name: "deep groups of errors", status: sandbox.StatusError, any: true, code: `e = ValueError(1)
for i in range(3000):
    n = ValueError(i); n.__cause__ = e; e = n
raise e`},
		{name: "invalid source text", code: "print('a\xff\xfeb')", stdout: "a\uFFFD\uFFFDb\n"},
		{name: "surrogates", status: sandbox.StatusError, has: "UnicodeEncodeError", code: `print('\ud800', ascii('\udfff'))`},
		{name: "zero bytes in the source", status: sandbox.StatusError, any: true, code: "print(1)\x00print(2)"},
		{name: "no source", code: ""},
		{name: "ten megabytes of source", status: sandbox.StatusRefused, has: "above the limit of 1048576", code: "#" + strings.Repeat("x", 10<<20)},
		{name: "ten megabytes of input", status: sandbox.StatusRefused, has: "above the limit of 1048576", stdin: strings.Repeat("x", 10<<20), code: "1"},
		{name: "a megabyte of input", stdin: strings.Repeat("x", 1<<20), code: "import sys\nprint(len(sys.stdin.read()))", stdout: "1048576\n"},
		{name: "nested parentheses", status: sandbox.StatusError, or: sandbox.StatusMemoryLimit, any: true, code: strings.Repeat("(", 500000)},
		{name: "nested operators", status: sandbox.StatusError, or: sandbox.StatusMemoryLimit, any: true, code: strings.Repeat("-", 100000) + "1"},
		{name: "nested comprehension", status: sandbox.StatusError, or: sandbox.StatusMemoryLimit, any: true, code: strings.Repeat("[", 90) + "1" + strings.Repeat(" for a in b]", 90)},
		{name: "long chain of attributes", status: sandbox.StatusError, or: sandbox.StatusKilled, any: true, code: "x" + strings.Repeat(".a", 200000)},
		{name: "huge literal", status: sandbox.StatusError, or: flood, any: true, code: "x = " + strings.Repeat("9", 1<<20-5)},
		{name: "many names", limits: spins, status: sandbox.StatusOK, or: sandbox.StatusTimeLimit, any: true, code: strings.Repeat("a = b = 1\n", 100000)},
	}
}
