package jail

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// inOwnMounts runs f on a thread that has mounts of its own, with those that f makes.
func inOwnMounts(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever, so that the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no mounts can be made: %v", err)
	}
}

// fullDisk mounts a file system at dir that has no byte and no inode left.
func fullDisk(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4096,nr_inodes=3"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		err := os.WriteFile(filepath.Join(dir, name), make([]byte, 4096), 0o600)
		if errors.Is(err, unix.ENOSPC) {
			return
		}
	}
	t.Fatal("the disk does not fill up")
}

// TestHostWithAFullDisk: neither the folder of locks nor the machine's /tmp is needed
// to run a program, and the program's own /tmp has its room.
func TestHostWithAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes mounts")
	}
	// A wrapper in front of the interpreter may need the folder of the test, below /tmp.
	python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	locks := t.TempDir()
	inOwnMounts(t, func() {
		fullDisk(t, locks)
		if u := claimUIDs(locks); u.first() < firstUID {
			t.Errorf("without room for a lock: %+v", u)
		}
		fullDisk(t, "/tmp")
		j, err := New(t.Context(), Config{Python: strings.TrimSpace(string(python))})
		if err != nil {
			t.Errorf("New: %v", err)
			return
		}
		defer func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}()
		in, err := j.Start(t.Context())
		if err != nil {
			t.Errorf("Start: %v", err)
			return
		}
		defer in.Close()
		res, err := in.Run(t.Context(), sandbox.Request{
			Stdin: "x", Code: "open('/tmp/f', 'wb').write(b'x' * (1 << 20))\nprint(input())",
		})
		if err != nil || res.Status != sandbox.StatusOK || res.Stdout != "x\n" {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

// TestStepsOfTheClockEndNoCall: all that the times of a call are made of comes from the
// monotonic clock, which nobody can set.
func TestStepsOfTheClockEndNoCall(t *testing.T) {
	j, err := New(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := j.Start(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, j.Close()))
	}
	defer func() {
		in.Close()
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := monotonic(t)
	ended := make(chan sandbox.Result, 1)
	go func() {
		res, err := in.Run(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(1)"})
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	time.Sleep(500 * time.Millisecond)
	in.light.mu.Lock()
	c := in.light.calls[0]
	in.light.mu.Unlock()
	if c == nil {
		t.Fatal("the call is not there")
	}
	used, ok := c.ask()
	begun := (&files{memory: c.slot.memory}).begun()
	after := monotonic(t)
	if !ok || used.fork < before || used.fork > after || begun < used.fork || begun > after || used.wall > after-before {
		t.Errorf("forked at %v, begun at %v, ran %v; the clock went from %v to %v", used.fork, begun, used.wall, before, after)
	}
	if res := <-ended; res.Status != sandbox.StatusOK || res.Usage.Wall > monotonic(t)-before {
		t.Errorf("got %+v", res)
	}
}

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
