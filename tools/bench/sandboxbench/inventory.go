package sandboxbench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"temper/tools/bench/meter"
)

// Inventory counts what a service holds, and what it may have left behind on the
// machine. Take it when no call is in flight.
type Inventory struct {
	Processes   int   `json:"processes"` // the service and all it started
	NodeRSS     int64 `json:"node_rss_bytes"`
	ZygoteRSS   int64 `json:"zygote_rss_bytes"` // of the service's descendants, shared pages once for each
	Descriptors int   `json:"descriptors"`      // of all of them
	Mounts      int   `json:"mounts"`           // of their mount namespaces and this process's, each once
	Cgroups     int   `json:"cgroups"`          // folders of all hierarchies
	SharedFiles int   `json:"shared_files"`     // in /dev/shm
	SharedBytes int64 `json:"shared_bytes"`     // tmpfs and shared memory of the machine
	TempFiles   int   `json:"temp_files"`       // in the temporary folder
	// Strangers are processes of users that had none when the soak began.
	Strangers int `json:"strangers"`
}

// surveyor takes inventories of one service.
type surveyor struct {
	root  int
	known map[uint32]bool // user ids that were there before
}

func newSurveyor(root int) *surveyor {
	s := &surveyor{root: root, known: map[uint32]bool{}}
	for _, p := range meter.Processes() {
		s.known[p.UID] = true
	}
	return s
}

func (s *surveyor) survey() (Inventory, error) {
	all := meter.Processes()
	members := meter.Tree(all, s.root)
	if len(members) == 0 {
		return Inventory{}, fmt.Errorf("process %d of the service is gone", s.root)
	}
	inv := Inventory{Processes: len(members), NodeRSS: members[0].RSS}
	pids := []int{os.Getpid()}
	for _, p := range members {
		pids = append(pids, p.PID)
		inv.Descriptors += entries(fmt.Sprintf("/proc/%d/fd", p.PID))
	}
	for _, p := range members[1:] {
		inv.ZygoteRSS += p.RSS
	}
	inv.Mounts = mounts(pids)
	for _, p := range all {
		if !s.known[p.UID] {
			inv.Strangers++
		}
	}
	inv.Cgroups = folders("/sys/fs/cgroup")
	inv.SharedFiles, inv.TempFiles = entries("/dev/shm"), entries(os.TempDir())
	inv.SharedBytes = meter.StatusBytes("/proc/meminfo", "Shmem")
	return inv, nil
}

// entries counts what is in a folder; one that cannot be read counts as empty.
func entries(dir string) int {
	names, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(names)
}

// mounts counts the lines of mountinfo of each mount namespace that the
// processes are in.
func mounts(pids []int) int {
	seen, count := map[uint64]bool{}, 0
	for _, pid := range pids {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil {
			continue // it ended meanwhile
		}
		sys, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[sys.Ino] {
			continue
		}
		seen[sys.Ino] = true
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err == nil {
			count += bytes.Count(text, []byte("\n"))
		}
	}
	return count
}

// folders counts the folders below dir; those that vanish meanwhile do not count.
func folders(dir string) int {
	count := 0
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fs.SkipDir
		case entry.IsDir():
			count++
		}
		return nil
	}) // the callback returns no error that ends the walk
	return count
}

// growth names what has grown from a to b by more than its floor and 5 %. It judges
// either memory, which a service may keep for a while, or counts, which show what
// programs left behind: the two are compared between different inventories.
func growth(a, b Inventory, memory bool) []string {
	type item struct {
		name         string
		before, now  int64
		floor        int64
		memory, byte bool
	}
	items := []item{
		{"processes", int64(a.Processes), int64(b.Processes), 4, false, false},
		{"descriptors", int64(a.Descriptors), int64(b.Descriptors), 16, false, false},
		{"mounts", int64(a.Mounts), int64(b.Mounts), 4, false, false},
		{"cgroups", int64(a.Cgroups), int64(b.Cgroups), 4, false, false},
		{"files in /dev/shm", int64(a.SharedFiles), int64(b.SharedFiles), 0, false, false},
		{"temporary files", int64(a.TempFiles), int64(b.TempFiles), 4, false, false},
		{"processes of strange users", int64(a.Strangers), int64(b.Strangers), 4, false, false},
		{"memory of the node", a.NodeRSS, b.NodeRSS, 16 << 20, true, true},
		{"memory of the zygotes", a.ZygoteRSS, b.ZygoteRSS, 32 << 20, true, true},
		{"shared memory", a.SharedBytes, b.SharedBytes, 16 << 20, true, true},
	}
	var out []string
	for _, i := range items {
		if i.memory != memory || i.now-i.before <= max(i.floor, i.before/20) {
			continue
		}
		if i.byte {
			out = append(out, fmt.Sprintf("%s: %d to %d MiB", i.name, i.before>>20, i.now>>20))
			continue
		}
		out = append(out, fmt.Sprintf("%s: %d to %d", i.name, i.before, i.now))
	}
	return out
}
