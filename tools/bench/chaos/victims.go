package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"temper/tools/bench/meter"
)

// Victim is a kind of process that can be killed.
type Victim struct {
	Name string
	// is recognises a process of the kind by its own command line and its ancestors',
	// nearest first.
	is func(p Process, ancestors []Process) bool
}

// role is a process of the temper binary in one of its roles.
func role(name string) func(Process, []Process) bool { return command("role", name) }

// command is a process of the temper binary with these words before its flags.
func command(words ...string) func(Process, []Process) bool {
	return func(p Process, ancestors []Process) bool {
		return len(p.Args) > len(words) && filepath.Base(p.Args[0]) == "temper" && slices.Equal(p.Args[1:1+len(words)], words) && !beforeExec(p, ancestors)
	}
}

// program is a process of another binary.
func program(name string) func(Process, []Process) bool {
	return func(p Process, ancestors []Process) bool {
		return len(p.Args) > 0 && filepath.Base(p.Args[0]) == name && !beforeExec(p, ancestors)
	}
}

// beforeExec is true of a child that does not run its own program yet: until then
// it has the command line of its parent.
func beforeExec(p Process, ancestors []Process) bool {
	return len(ancestors) > 0 && slices.Equal(p.Args, ancestors[0].Args)
}

// interpreter is anything that a sandbox started for itself.
func interpreter(p Process, ancestors []Process) bool {
	return slices.ContainsFunc(ancestors, func(a Process) bool { return role(Sandbox)(a, nil) })
}

// Names of victims that the code refers to.
const (
	Supervisor  = "up"
	Sandbox     = "sandbox"
	Interpreter = "interpreter"
)

// Victims is every kind of process of a service on one machine.
func Victims() []Victim {
	return []Victim{
		{"temporald", program("temporald")},
		{"control", role("control")},
		{"trainer", role("trainer")},
		{Sandbox, role(Sandbox)},
		{Interpreter, interpreter},
		{Supervisor, command(Supervisor)},
	}
}

// ElasticVictims is every kind of process of a service whose roles come and go.
func ElasticVictims() []Victim {
	return []Victim{
		{"temporald", program("temporald")},
		{"control", role("control")},
		{"trainer", role("trainer")},
		{"rollout", role("rollout")},
		{Sandbox, role(Sandbox)},
		{"gateway", role("gateway")},
		{Interpreter, interpreter},
	}
}

// ObjectStore is the server of a store that is a child of the harness.
func ObjectStore() Victim { return Victim{"s3d", program("s3d")} }

// Process is a living process.
type Process struct {
	PID    int
	Parent int
	Args   []string
}

func (p Process) String() string {
	return strconv.Itoa(p.PID) + " " + strings.Join(p.Args, " ")
}

// Tree lists the living processes below root, by process id.
func Tree(root int) []Process { return newFamily(root).below }

// Find lists the processes below root that are of the victim's kind.
func (v Victim) Find(root int) []Process {
	f := newFamily(root)
	return slices.DeleteFunc(slices.Clone(f.below), func(p Process) bool { return !v.is(p, f.ancestors(p)) })
}

// family is the processes below root.
type family struct {
	root  int
	all   map[int]Process
	below []Process
}

func newFamily(root int) *family {
	f := &family{root: root, all: processes()}
	for _, p := range f.all {
		if p.PID != root && f.descends(p) {
			f.below = append(f.below, p)
		}
	}
	slices.SortFunc(f.below, func(a, b Process) int { return a.PID - b.PID })
	return f
}

func (f *family) descends(p Process) bool {
	for range 64 { // deeper trees are loops of reused ids
		if p.Parent == f.root {
			return true
		}
		up, ok := f.all[p.Parent]
		if !ok {
			return false
		}
		p = up
	}
	return false
}

func (f *family) ancestors(p Process) []Process {
	var out []Process
	for range 64 {
		up, ok := f.all[p.Parent]
		if !ok || up.PID == f.root {
			break
		}
		out = append(out, up)
		p = up
	}
	return out
}

// processes reads what lives. What ends meanwhile, and what has ended and waits for
// its parent, is left out.
func processes() map[int]Process {
	out := map[int]Process{}
	for pid, p := range meter.Processes() {
		if p.State == 'Z' || p.State == 'X' {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")) //nolint:gosec // a path of /proc
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		out[pid] = Process{PID: pid, Parent: p.Parent, Args: args}
	}
	return out
}
