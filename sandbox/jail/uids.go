package jail

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// User ids that own nothing on any machine. Each jail uses one range of them: the
// kernel counts threads by user id, so two nodes of a machine must not share one.
const (
	firstUID  = 0x70000000
	rangeSize = 1 << 16
	numRanges = 1 << 12
)

// rangeDir holds a lock file for each range that is or was in use on this machine.
const rangeDir = "/run/temper-sandbox"

// uids allocates user ids so that no two living programs share one.
type uids struct {
	lock *os.File // held as long as the range; nil without a lock file

	mu   sync.Mutex
	free []uint32
	next uint32
}

// claimUIDs takes a range that no other jail of this machine uses. The name of the host
// selects the first candidate, so that containers on one kernel, which do not see each
// other's locks, start at different ranges. If nothing can be locked, the process id
// selects the range.
func claimUIDs(dir string) *uids {
	host, err := os.Hostname()
	if err != nil {
		host = "" // all hosts start at the same range
	}
	sum := fnv.New32a()
	fmt.Fprint(sum, host)
	start := sum.Sum32() % numRanges
	if os.Geteuid() == 0 && os.MkdirAll(dir, 0o700) == nil {
		for i := range uint32(numRanges) {
			n := (start + i) % numRanges
			f, taken, err := lockRange(dir, n)
			if err != nil {
				break
			}
			if !taken {
				return &uids{lock: f, next: firstUID + n*rangeSize}
			}
		}
	}
	n := (start + uint32(os.Getpid())) % numRanges
	return &uids{next: firstUID + n*rangeSize}
}

func lockRange(dir string, n uint32) (f *os.File, taken bool, err error) {
	f, err = os.OpenFile(filepath.Join(dir, fmt.Sprintf("uids-%04d.lock", n)), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, true, nil
		}
		return nil, false, err
	}
	return f, false, nil
}

// first returns the lowest id of the range, which no call gets.
func (u *uids) first() uint32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.next &^ (rangeSize - 1)
}

func (u *uids) acquire() uint32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.free); n > 0 {
		id := u.free[n-1]
		u.free = u.free[:n-1]
		return id
	}
	u.next++
	return u.next
}

func (u *uids) recycle(id uint32) {
	u.mu.Lock()
	u.free = append(u.free, id)
	u.mu.Unlock()
}

// release gives the range back.
func (u *uids) release() error {
	if u.lock == nil {
		return nil
	}
	return u.lock.Close()
}
