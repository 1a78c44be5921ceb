package sandboxbench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"temper/tools/bench/meter"
)

// Witness knows what a machine held before a service was started on it.
type Witness struct {
	known  map[uint32]bool
	mounts int
}

// NewWitness looks at the machine.
func NewWitness() Witness { return Witness{newSurveyor(0).known, mounts([]int{os.Getpid()})} }

// Survivors name what a service that has ended left on the machine: its cgroups, and
// processes of users that had none before and whose parent is gone.
func (w Witness) Survivors(pid int) []string {
	var out []string
	for _, p := range meter.Processes() {
		if !w.known[p.UID] && p.Parent == 1 {
			out = append(out, fmt.Sprintf("process %d of user %d", p.PID, p.UID))
		}
	}
	own := []string{fmt.Sprintf("temper-%d-", pid), fmt.Sprintf("temper-owner-%d", pid)}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (strings.HasPrefix(entry.Name(), own[0]) || entry.Name() == own[1]) {
			out = append(out, "cgroup "+path)
		}
		return nil
	}) // what cannot be read is not ours
	if now := mounts([]int{os.Getpid()}); now > w.mounts {
		out = append(out, fmt.Sprintf("mounts of the machine: %d to %d", w.mounts, now))
	}
	return out
}
