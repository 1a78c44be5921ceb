package jail_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// openRooms opens an interpreter whose calls get prepared namespaces.
func openRooms(t *testing.T) *jail.Interpreter {
	t.Helper()
	j, in := open(t, jail.Config{Heavy: []string{}})
	for _, name := range []string{"pid_namespace", "call_namespaces", "tmpfs", "uid", "capabilities", "seccomp"} {
		needLayer(t, j, name)
	}
	return in
}

// traces says what a call can find of one that had its room before.
const traces = `
import os
s, f = os.stat('/tmp'), os.statvfs('/tmp')
print(os.listdir('/tmp'), s.st_mtime_ns, s.st_nlink, s.st_size, oct(s.st_mode), s.st_uid, f.f_bfree, f.f_ffree)
`

// TestRoomsKeepNoTrace writes to /tmp in all ways there are, then looks from the calls
// that come after, which get the same rooms.
func TestRoomsKeepNoTrace(t *testing.T) {
	in := openRooms(t)
	clean := run(t, in, sandbox.Request{Code: traces}).Stdout
	if !strings.HasPrefix(clean, "[] 0 ") {
		t.Fatalf("a call in a fresh room finds %q", clean)
	}
	number := "open('n', 'w'); import os; print(os.stat('n').st_ino)"
	first := run(t, in, sandbox.Request{Code: number}).Stdout
	for _, code := range []string{
		"open('/tmp/left', 'w').write('x' * 1000)",
		"import os; open('a', 'w'); os.remove('a')",
		"import os; os.mkdir('d'); os.rmdir('d')",
		"import os; os.utime('/tmp')",
		"import os; os.symlink('x', 'l'); os.rename('l', 'm'); os.remove('m')",
		"import tempfile; tempfile.TemporaryFile().write(b'x')",
		"import os\ntry: os.open('/tmp', os.O_TMPFILE | os.O_RDWR)\nexcept OSError: pass",
		"import os\nopen('a', 'w'); os.remove('a')\ntry: os.utime('/tmp', (0, 0))\nexcept OSError as e: print(e.errno)",
		"open('a', 'w')\nwhile True: pass",
	} {
		run(t, in, sandbox.Request{Code: code, Limits: sandbox.Limits{CPU: 100 * time.Millisecond}})
		for range 2 {
			if got := run(t, in, sandbox.Request{Code: traces}).Stdout; got != clean {
				t.Errorf("after %q: %q, want %q", code, got, clean)
			}
		}
		if got := run(t, in, sandbox.Request{Code: number}).Stdout; got != first {
			t.Errorf("after %q the first file has number %q, want %q", code, got, first)
		}
	}
}

// TestRoomsAreRenewed makes more calls that write than there are rooms.
func TestRoomsAreRenewed(t *testing.T) {
	in := openRooms(t)
	for i := range 60 {
		run(t, in, sandbox.Request{Code: "open('a', 'w')"})
		look := sandbox.Request{Code: "import os; print(os.stat('/tmp').st_mtime_ns, os.listdir('/tmp'))"}
		res := run(t, in, look)
		// On a busy machine all rooms may wait for their helpers.
		for wait := time.Now().Add(5 * time.Second); res.Stdout != "0 []\n" && time.Now().Before(wait); res = run(t, in, look) {
			time.Sleep(10 * time.Millisecond)
		}
		if res.Stdout != "0 []\n" {
			t.Fatalf("call %d: %q %s: want a room", i, res.Stdout, res.Reason)
		}
	}
}

// TestCallsBeyondTheRooms runs more programs at a time than there are rooms; each has a
// /tmp of its own.
func TestCallsBeyondTheRooms(t *testing.T) {
	in := openRooms(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			name := fmt.Sprintf("f%d", i)
			res := run(t, in, sandbox.Request{Code: "import os, time\nopen('" + name + "', 'w')\ntime.sleep(0.5)\nprint(os.listdir('/tmp'))"})
			if res.Stdout != "['"+name+"']\n" {
				t.Errorf("call %d finds %q %s", i, res.Stdout, res.Reason)
			}
		})
	}
	all.Wait()
	if got := run(t, in, sandbox.Request{Code: "import os; print(os.listdir('/tmp'))"}).Stdout; got != "[]\n" {
		t.Errorf("a later call finds %q", got)
	}
}
