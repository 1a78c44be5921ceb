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

// Programs of the profile subprocess may fork, and may execute only the interpreter,
// whose file landlock names. They stay in their pid namespace, which ends with its
// first process, under the same system call filter except for fork and exec, and under one
// user id, by which the kernel counts processes. The kernel limits processor time and
// memory only for each process, so the owner adds those up.

// spawnLayers lists the layers that the profile requires.
var spawnLayers = [...]string{"root", "pid_namespace", "landlock", "rlimits", "uid", "seccomp"}

// spawnLook is the longest pause between two looks at the processes of a program.
const spawnLook = 50 * time.Millisecond

// refuseSpawn returns why req may not start processes; empty when it may, or does not ask.
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

// processTree lists the process pid and its descendants, including zombies.
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

// treeUse returns the processor time of the processes of a program, including the children
// that they have waited for, and their memory in bytes.
func treeUse(pid int) (cpu time.Duration, memory int64) {
	for _, member := range processTree(pid) {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", member)); err == nil {
			cpu += statTime(text)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", member))
		if err != nil {
			continue // a zombie has no memory
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

// statTime returns the processor time in a line of /proc/PID/stat, including the children
// that the process has waited for.
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

// addTree adds the processor time of the other processes of the program to used, and
// reports whether all its processes together exceed its memory limit.
func (w *watch) addTree(used *times) (over bool) {
	cpu, memory := treeUse(w.call.findPID(used.pid))
	w.treeCPU = max(w.treeCPU, cpu)
	used.cpu = max(used.cpu, w.treeCPU)
	return memory > w.memory
}

// treeThreads is like threads, for a program with several processes.
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
