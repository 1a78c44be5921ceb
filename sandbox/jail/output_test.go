package jail

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOutputOutlivesItsDeadline: a reader that comes to run only after the time
// that it is given still finds what the program wrote.
func TestOutputOutlivesItsDeadline(t *testing.T) {
	for name, late := range map[string]time.Duration{"in time": time.Hour, "too late": -time.Second} {
		t.Run(name, func(t *testing.T) {
			var fds [2]int
			if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
			want := strings.Repeat("0123456789", 2000)
			if n, err := unix.Write(fds[1], []byte(want)); err != nil || n != len(want) {
				t.Fatalf("wrote %d bytes, %v", n, err)
			}
			if err := unix.Close(fds[1]); err != nil {
				t.Fatal(err)
			}
			c := newCapture(fds[0], int64(len(want)), nil)
			c.open()
			if err := c.file.SetReadDeadline(time.Now().Add(late)); err != nil {
				t.Fatal(err)
			}
			c.read()
			if got := c.text(); got != want {
				t.Errorf("%d bytes of %d are left", len(got), len(want))
			}
		})
	}
}
