package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of cgroups: temper-<pid of the owner>-<n>, and temper-owner-<pid> for
// the owner itself where the kernel requires a leaf.
const (
	cgroupPrefix = "temper-"
	ownerPrefix  = "temper-owner-"
)

// place is a location in which cgroups can be made.
type place struct {
	unified     bool           // version 2: one hierarchy for all controllers
	parents     []string       // the owner's directory in each hierarchy
	controllers map[string]int // index in parents of a controller's hierarchy
	lacking     []string
}

// wanted lists the controllers; only the first is required.
var wanted = [...]string{"memory", "pids", "cpu"}

// findPlace finds the owner's cgroup: in the hierarchies of version 1 if the memory
// controller is there, else in the unified one.
func findPlace(cfg cgroupConfig) (place, error) {
	mounts, err := os.ReadFile(filepath.Join(cfg.proc, "self/mountinfo"))
	if err != nil {
		return place{}, fmt.Errorf("cgroup: %w", err)
	}
	own, err := os.ReadFile(filepath.Join(cfg.proc, "self/cgroup"))
	if err != nil {
		return place{}, fmt.Errorf("cgroup: %w", err)
	}
	dirs := ownDirs(string(mounts), string(own))
	p := place{controllers: make(map[string]int)}
	if _, ok := dirs[wanted[0]]; ok {
		for _, name := range wanted {
			p.put(name, dirs[name])
		}
		return p, nil
	}
	dir, ok := dirs[""]
	if !ok {
		return place{}, errors.New("cgroup: no hierarchy is mounted")
	}
	p.unified = true
	return p, p.delegate(dir, cfg.write)
}

// put records the directory that serves a controller.
func (p *place) put(controller, dir string) {
	if dir == "" {
		p.lacking = append(p.lacking, controller)
		return
	}
	at := slices.Index(p.parents, dir)
	if at < 0 {
		at = len(p.parents)
		p.parents = append(p.parents, dir)
	}
	p.controllers[controller] = at
}

// ownDirs maps each controller of version 1, and "" for the unified hierarchy, to the
// directory of this process's cgroup.
func ownDirs(mountinfo, cgroups string) map[string]string {
	paths := make(map[string]string)
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for name := range strings.SplitSeq(parts[1], ",") {
				paths[name] = parts[2]
			}
		}
	}
	dirs := make(map[string]string)
	for line := range strings.Lines(mountinfo) {
		head, tail, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		names := []string{""}
		switch kind[0] {
		case "cgroup":
			names = strings.Split(kind[2], ",")
		case "cgroup2":
		default:
			continue
		}
		for _, name := range names {
			path, ok := paths[name]
			root := strings.TrimSuffix(unescape(fields[3]), "/")
			if inside, below := strings.CutPrefix(path, root); ok && below && dirs[name] == "" {
				dirs[name] = filepath.Join(unescape(fields[4]), inside)
			}
		}
	}
	return dirs
}

// unescape decodes the kernel's escapes for blanks in paths.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// delegate enables the controllers of a unified cgroup for its children. The kernel allows
// that only if no process lives in the cgroup itself, so the owner moves into a leaf below
// it. If other processes live there too, the owner has to stay.
func (p *place) delegate(dir string, write func(path, value string) error) error {
	if strings.HasPrefix(filepath.Base(dir), ownerPrefix) {
		dir = filepath.Dir(dir) // an earlier call moved the owner
	}
	there, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	available := strings.Fields(string(there))
	if !slices.Contains(available, wanted[0]) {
		return fmt.Errorf("cgroup: %s has no memory controller", dir)
	}
	var enable []string
	for _, name := range wanted {
		if slices.Contains(available, name) {
			p.put(name, dir)
			enable = append(enable, "+"+name)
		} else {
			p.put(name, "")
		}
	}
	control, names := filepath.Join(dir, "cgroup.subtree_control"), strings.Join(enable, " ")
	err = write(control, names)
	if !errors.Is(err, unix.EBUSY) {
		return wrapCgroup(err)
	}
	return moveOwner(dir, func() error { return write(control, names) }, write)
}

// moveOwner moves this process into a leaf and tries again. It moves back when that fails.
func moveOwner(dir string, again func() error, write func(path, value string) error) error {
	leaf := filepath.Join(dir, ownerPrefix+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return wrapCgroup(err)
	}
	self := strconv.Itoa(os.Getpid())
	err := write(filepath.Join(leaf, "cgroup.procs"), self)
	if err == nil {
		err = again()
	}
	if err == nil {
		return nil
	}
	back := write(filepath.Join(dir, "cgroup.procs"), self)
	return errors.Join(fmt.Errorf("cgroup: %s is shared with other processes, run the owner in one that is delegated to it: %w", dir, err),
		back, removeCgroup(leaf))
}

func wrapCgroup(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cgroup: %w", err)
}

// available returns the memory that the owner may use, in bytes: the smallest of the
// machine's memory and the limits of its cgroup and the cgroups above.
func (p *place) available(proc string) int64 {
	least := int64(1) << 62
	if text, err := os.ReadFile(filepath.Join(proc, "meminfo")); err == nil {
		fields := strings.Fields(string(text))
		if len(fields) > 1 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				least = kib << 10
			}
		}
	}
	name := "memory.limit_in_bytes"
	if p.unified {
		name = "memory.max"
	}
	for dir := p.parents[p.controllers["memory"]]; len(dir) > 1; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		// The unified hierarchy writes "max" for no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			least = min(least, n)
		}
	}
	return least
}

// sweep removes the cgroups of dead owners. The kernel refuses to remove a cgroup in use,
// so a wrong guess does no harm.
func (p *place) sweep() {
	for _, parent := range p.parents {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue // newCgroup will fail with the reason
		}
		for _, entry := range entries {
			if pid := ownerOf(entry.Name()); pid > 0 && unix.Kill(pid, 0) == unix.ESRCH {
				// EBUSY: its last processes are dying, the next start removes it.
				_ = unix.Rmdir(filepath.Join(parent, entry.Name()))
			}
		}
	}
}

// ownerOf returns the process id in the name of a cgroup of this package, or 0.
func ownerOf(name string) int {
	rest, ok := strings.CutPrefix(name, ownerPrefix)
	if !ok {
		if rest, ok = strings.CutPrefix(name, cgroupPrefix); !ok {
			return 0
		}
		if rest, _, ok = strings.Cut(rest, "-"); !ok {
			return 0
		}
	}
	pid, err := strconv.Atoi(rest)
	if err != nil {
		return 0
	}
	return pid
}
