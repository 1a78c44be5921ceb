package jail_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// fileAttacks look for files that are none of their business, or for too many.
func fileAttacks() []attack {
	return []attack{
		{name: "files of the machine", code: `import os
print([p for p in ('/etc/shadow', '/etc/hosts', '/proc/1/environ', '/proc/self/maps', '/sys', '/home', '/root/.ssh', '/var', '/run', '/boot', '/dev/mem', '/dev/kvm', '/dev/tty') if os.path.exists(p)])
print(open('/etc/passwd').read(), sorted(os.listdir('/etc')), sorted(os.listdir('/dev')))`, has: "[]\nsandbox:x:0:0::/tmp:/\n"},
		{name: "environment", code: "import os\nprint(sorted(os.environ))",
			stdout: "['HOME', 'LC_ALL', 'MKL_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', 'PYTHONHASHSEED', 'TMPDIR', 'TZ']\n"},
		{name: "memory of the parent", code: `import os
for p in ('/proc/self/mem', '/proc/0/mem', '/proc/1/mem', '/proc/%d/mem' % os.getppid(), '/dev/mem', '/dev/kmem', '/proc/kcore'):
    try: open(p, 'rb'); print('opened', p)
    except OSError as e: print(e.errno, end=' ')`, stdout: "2 2 2 2 2 2 2 "},
		{name: "device nodes", code: `import os
for d in set(os.listdir('/dev')) - {'shm'}:
    try: open('/dev/' + d, 'rb').read(16)
    except OSError: print('unreadable', d)
print(open('/dev/null', 'wb').write(b'x'))`, stdout: "1\n"},
		{name: "symbolic link out", code: `import os
for i, target in enumerate(('/etc/shadow', '/proc/self/environ', '../../../../etc/shadow', '/proc/1/root/etc/shadow')):
    os.symlink(target, '/tmp/l%d' % i)
    try: open('/tmp/l%d' % i); print('opened', target)
    except OSError as e: print(e.errno)`, stdout: "2\n2\n2\n2\n"},
		{name: "circle of links", code: "import os\nos.symlink('/tmp/a', '/tmp/b'); os.symlink('/tmp/b', '/tmp/a')\ntry: open('/tmp/a')\nexcept OSError as e: print(e.errno)", stdout: "40\n"},
		{name: "hard links", code: `import os
open('/tmp/f', 'w').close()
for a, b in (('/etc/passwd', '/tmp/p'), ('/tmp/f', '/tmp/g'), (os.__file__, '/tmp/h')):
    try: os.link(a, b); print('linked', a)
    except OSError as e: print(e.errno)
try: os.link(os.__file__, '/tmp/i', follow_symlinks=False)
except (OSError, NotImplementedError): print('no')`, stdout: "18\nlinked /tmp/f\n18\nno\n"},
		{name: "fills the inodes with hard links", code: "import os\nopen('/tmp/f', 'w').close()\nn = 0\ntry:\n    while True:\n        os.link('/tmp/f', '/tmp/%d' % n); n += 1\nexcept OSError as e: print(n < 1024, e.errno)", stdout: "True 28\n"},
		{name: "shared memory of the machine", code: "import os\nopen('/dev/shm/escaped', 'w').close()\nprint(os.listdir('/dev/shm'), os.listdir('/tmp'))", stdout: "['escaped'] ['escaped']\n"},
		{name: "dot dot", code: "import os\nos.chdir('/tmp'); print(sorted(set(os.listdir('../../..')) - {'dev','etc','lib','lib64','tmp','usr','opt'}))", stdout: "[]\n"},
		{name: "leaves through an open directory", code: `import os
fd = os.open('/', os.O_RDONLY); os.chdir('/tmp')
try: os.chroot('/tmp'); print('chroot')
except OSError as e: print(e.errno)
os.fchdir(fd)
for _ in range(99): os.chdir('..')
print(os.getcwd(), os.path.exists('etc/shadow'))`, stdout: "1\n/ False\n"},
		{name: "writes to the root", code: `import os
for p in ('/escaped', '/etc/passwd', '/etc/escaped', '/usr/escaped', os.__file__, os.path.dirname(os.__file__) + '/escaped.py'):
    try: open(p, 'a'); print('wrote', p)
    except OSError as e: print(e.errno in (2, 13, 30))
for f in (lambda: os.remove('/etc/passwd'), lambda: os.rename('/etc', '/tmp/etc'), lambda: os.chmod('/', 0o777), lambda: os.truncate(os.__file__, 0), lambda: os.utime(os.__file__)):
    try: f(); print('done')
    except OSError as e: print(e.errno in (1, 13, 16, 18, 30))`, stdout: "True\nTrue\nTrue\nTrue\nTrue\nTrue\nTrue\nTrue\nTrue\nTrue\nTrue\n"},
		{name: "nodes", code: `import os, stat
for mode in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK):
    try: os.mknod('/tmp/n', mode | 0o666, os.makedev(1, 1)); print('made')
    except OSError as e: print(e.errno)
try: os.mkfifo('/tmp/p'); print('made')
except OSError as e: print(e.errno)`, stdout: "1\n1\n1\n1\n1\n"},
		{name: "fills the disk", code: `n = 0
try:
    for i in range(9):
        with open('/tmp/%d' % i, 'wb') as f:
            while True: n += f.write(b'x' * 65536)
except OSError as e: print(n <= 32 << 20, e.errno in (27, 28))`, stdout: "True True\n"},
		{name: "fills the disk with many files", code: `n = 0
try:
    while True:
        with open('/tmp/%d' % n, 'wb') as f: f.write(b'x' * (1 << 20))
        n += 1
except OSError as e: print(n <= 32, e.errno)`, stdout: "True 28\n"},
		{name: "fills the inodes", code: "n = 0\ntry:\n    while True:\n        open('/tmp/%d' % n, 'w').close(); n += 1\nexcept OSError as e: print(n < 1024, e.errno)", stdout: "True 28\n"},
		{name: "fills the inodes with links", code: "import os\nn = 0\ntry:\n    while True:\n        os.symlink('x' * 4000, '/tmp/%d' % n); n += 1\nexcept OSError as e: print(n < 1024, e.errno)", stdout: "True 28\n"},
		{name: "sparse file", code: `import os
f = os.open('/tmp/f', os.O_CREAT | os.O_RDWR)
for grow in (lambda: os.ftruncate(f, 1 << 40), lambda: os.pwrite(f, b'x', 1 << 40), lambda: os.posix_fallocate(f, 0, 1 << 40)):
    try: grow(); print('grown')
    except OSError as e: print(e.errno in (1, 27))`, stdout: "True\nTrue\nTrue\n"},
		{name: "zip bomb", code: `import io, zipfile
b = io.BytesIO()
with zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED) as z:
    for i in range(8): z.writestr('f%d' % i, bytes(8 << 20))
try: zipfile.ZipFile(b).extractall('/tmp/z'); print('unpacked')
except OSError as e: print(e.errno)`, stdout: "28\n"},
		{name: "deep directories", code: `import os
n = 0
try:
    while n < 5000: os.mkdir('d'); os.chdir('d'); n += 1
except OSError as e: print(n < 1024, e.errno)`, stdout: "True 28\n"},
		{name: "all descriptors", code: "import os\nx = []\ntry:\n    while True: x.append(os.open('/dev/null', 0))\nexcept OSError as e: print(e.errno, len(x) < 64)", stdout: "24 True\n"},
		{name: "code in a file", needs: "landlock", code: "import ctypes, shutil, _ctypes\nshutil.copyfile(_ctypes.__file__, '/tmp/x.so')\ntry: ctypes.CDLL('/tmp/x.so'); print('loaded')\nexcept OSError: print('no')", stdout: "no\n"},
		{name: "code in memory", amd64: true, code: lib + `
e = (ctypes.c_char_p * 1)()
fd = os.open('/tmp/x', os.O_CREAT | os.O_RDWR, 0o777)
os.write(fd, b'#!/bin/sh\necho ran\n')
print(sc(59, b'/tmp/x', e, e), sc(322, fd, b'', e, e, 0x1000), sc(322, -100, b'/tmp/x', e, e, 0))`, stdout: "1 1 1\n"},
		{name: "preloaded library", code: `import os
os.environ['LD_PRELOAD'] = os.environ['LD_LIBRARY_PATH'] = os.environ['PYTHONPATH'] = '/tmp/evil.so'
open('/tmp/evil.so', 'w').write('x')
try: os.execvp('python3', ['python3', '-c', '1'])
except OSError as e: print(e.errno)`, stdout: "1\n"},
		{name: "set-uid file", code: `import os
open('/tmp/s', 'w').close(); os.chmod('/tmp/s', 0o6777)
print(os.statvfs('/tmp').f_flag & 2, os.statvfs('/tmp').f_flag & 8)`, stdout: "2 8\n"},
		{name: "planted modules", code: `for n in ('json', 'colorsys', 'sitecustomize', 'usercustomize', 'threading', 'main'):
    open('/tmp/%s.py' % n, 'w').write('print("planted")')
import os, sys
os.makedirs('/tmp/__pycache__'); sys.path.insert(0, '/tmp'); os.environ['PYTHONSTARTUP'] = '/tmp/main.py'
print(len(os.listdir('/tmp')))`, stdout: "7\n"},
		{name: "lock on what others share", code: `import fcntl, os
f = open(os.__file__)
try: fcntl.flock(f, fcntl.LOCK_EX); print('locked')
except OSError as e: print(e.errno)
try: fcntl.lockf(f, fcntl.LOCK_EX); print('locked')
except OSError as e: print(e.errno)
try: fcntl.fcntl(f, 1024, 1); print('leased')
except OSError as e: print(e.errno)`, stdout: "1\nlocked\n1\n"}, // the second one is pretended
		{name: "database", code: `import sqlite3
a, b = sqlite3.connect('/tmp/x.db', timeout=0), sqlite3.connect('/tmp/x.db', timeout=0)
a.execute('create table t(n)'); a.execute('insert into t values (1)')
try: b.execute('insert into t values (2)'); print('both write')
except sqlite3.OperationalError as e: print(e)
a.commit(); b.execute('insert into t values (3)'); b.commit()
print(a.execute('select n from t order by n').fetchall())`, stdout: "database is locked\n[(1,), (3,)]\n"},
		{name: "cache of others", amd64: true, code: lib + `
import mmap
f = open(os.__file__, 'rb')
m = mmap.mmap(f.fileno(), 4096, prot=1)
b = ctypes.create_string_buffer(64)
print(sc(221, f.fileno(), 0, 0, 4), sc(27, 0x400000, 4096, b), sc(451, f.fileno(), b, b, 0), sc(28, 0x400000, 4096, 21), sc(277, f.fileno(), 0, 0, 7))
os.fsync(f.fileno()); m.close()`, stdout: "1 1 1 1 1\n"},
		{name: "watches files", amd64: true, code: lib + "print(sc(253), sc(294, 0), sc(300, 0, 0), sc(301, 3, 1, 0, 0, b'/'))", stdout: "1 1 1 1\n"},
		{name: "attributes", code: `import os
open('/tmp/f', 'w').close()
try: os.setxattr('/tmp/f', 'user.x', b'1'); print('set')
except OSError as e: print(e.errno)
print(os.listxattr('/tmp/f'))`, any: true},
		{name: "shares of the root are gone with the call", any: true, status: sandbox.StatusOK, code: "import tempfile\nd = tempfile.mkdtemp()\nopen(d + '/escaped', 'w').write('x')"},
	}
}

// TestLocksAreNoMessages: a lock that somebody outside holds on an inode that calls
// share is not seen inside, and one of a program locks nothing.
func TestLocksAreNoMessages(t *testing.T) {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 77, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	_, in := open(t, jail.Config{})
	res := run(t, in, sandbox.Request{Code: `import fcntl, struct
f = open('/dev/null', 'r+b')
ask = struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 0, 1 << 40, 0)
print(fcntl.fcntl(f, fcntl.F_GETLK, ask) == ask)
fcntl.lockf(f, fcntl.LOCK_EX, 1, 5)
print('locked')`})
	if res.Stdout != "True\nlocked\n" {
		t.Errorf("got %+v, want nothing of the lock outside", res)
	}
}
