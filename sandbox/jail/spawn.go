package jail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/sandbox"
)

// Programs of the profile subprocess may fork, and execute the interpreter and nothing
// else: landlock names its file. They stay in their pid namespace, which ends with its
// first process, under the same system call filter but for fork and exec, and under one
// user id, by which the kernel counts processes. What the kernel limits for each process
// only, processor time and memory, the owner adds up.

// spawnLayers are the layers without which the profile is not served.
var spawnLayers = [...]string{"root", "pid_namespace", "landlock", "rlimits", "uid", "seccomp"}

// spawnLook is the longest pause between two looks at the processes of a program.
const spawnLook = 50 * time.Millisecond

// refuseSpawn returns why req may not start processes; empty when it may or does not ask.
func (j *Jail) refuseSpawn(req sandbox.Request) string {
	if req.Profile != sandbox.ProfileSubprocess {
		return ""
	}
	if !j.cfg.Subprocess {
		return "profile subprocess is not allowed on this node: its operator has to start it with --subprocess"
	}
	if req.Session != "" {
		return "profile subprocess is for calls without a session"
	}
	for _, l := range j.report.Layers {
		if !l.On && slices.Contains(spawnLayers[:], l.Name) {
			return fmt.Sprintf("profile subprocess needs the layer %s: %s", l.Name, l.Reason)
		}
	}
	return ""
}

// family lists the process pid and its descendants, dead ones that nobody has waited
// for among them.
func processTree(pid int) []int {
	if pid <= 0 {
		return nil
	}
	list := []int{pid}
	for i := 0; i < len(list) && len(list) < 4*pidsPerChild; i++ {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", list[i]))
		if err != nil {
			continue // the pattern is well-formed
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // ended meanwhile
			}
			for field := range strings.FieldsSeq(string(text)) {
				if child, err := strconv.Atoi(field); err == nil && !slices.Contains(list, child) {
					list = append(list, child)
				}
			}
		}
	}
	return list
}

// familyUse returns the processor time of the processes of a program, with those that
// they have waited for, and the memory that they hold together.
func treeUse(pid int) (cpu time.Duration, memory int64) {
	for _, member := range processTree(pid) {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", member)); err == nil {
			cpu += statTime(text)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", member))
		if err != nil {
			continue // a dead one has no memory
		}
		if _, rest, ok := bytes.Cut(text, []byte("\nPss:")); ok {
			field, _, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
			if kib, err := strconv.ParseInt(field, 10, 64); err == nil {
				memory += kib << 10
			}
		}
	}
	return cpu, memory
}

// statTime returns the processor time in a line of /proc/PID/stat, with that of the
// children that were waited for.
func statTime(text []byte) time.Duration {
	// The second field is the name in parentheses, which may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return 0
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime stime cutime cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ
}

// spawned adds to used what the other processes of the program use, and reports whether
// all of them together are above its memory.
func (w *watch) addTree(used *times) (over bool) {
	cpu, memory := treeUse(w.call.findPID(used.pid))
	w.treeCPU = max(w.treeCPU, cpu)
	used.cpu = max(used.cpu, w.treeCPU)
	return memory > w.memory
}

// familyThreads is threads for a program with several processes.
func treeThreads(pid int) threadStats {
	all := threads(pid)
	for _, member := range processTree(pid)[1:] {
		c := threads(member)
		for id, t := range c.threads {
			all.threads[id] = t
		}
		all.waiting = all.waiting || c.waiting
		all.runnable += c.runnable
	}
	return all
}
