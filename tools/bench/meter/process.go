package meter

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is what /proc/PID/stat says of one process.
type Process struct {
	PID, Parent int
	State       byte // as in proc(5): Z has ended and waits for its parent
	UID         uint32
	CPU         time.Duration // its own, and that of children it has waited for
	RSS         int64         // bytes
	ChildFaults int64         // page faults without a disk read, of children it has waited for
}

// tick is the unit of times in /proc, 1/100 s on every architecture of Linux.
const tick = 10 * time.Millisecond

// ParseStat reads a line of /proc/PID/stat.
func ParseStat(line []byte) (Process, error) {
	// The name in parentheses may hold anything; fields are counted after it.
	end := bytes.LastIndexByte(line, ')')
	open := bytes.IndexByte(line, '(')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("stat %.40q: no name", line)
	}
	fields := strings.Fields(string(line[end+1:]))
	const state, ppid, cminflt, utime, cstime, rss = 0, 1, 8, 11, 14, 21
	if len(fields) <= rss {
		return Process{}, fmt.Errorf("stat %.40q: %d fields", line, len(fields))
	}
	var p Process
	var err error
	number := func(text string) int64 {
		n, e := strconv.ParseInt(text, 10, 64)
		if err == nil {
			err = e
		}
		return n
	}
	p.PID = int(number(strings.TrimSpace(string(line[:open]))))
	p.State = fields[state][0]
	p.Parent = int(number(fields[ppid]))
	for i := utime; i <= cstime; i++ { // utime, stime, cutime, cstime
		p.CPU += time.Duration(number(fields[i])) * tick
	}
	p.ChildFaults = number(fields[cminflt])
	p.RSS = number(fields[rss]) * int64(os.Getpagesize())
	return p, err
}

// Processes reads all visible processes. It leaves out those that end meanwhile.
func Processes() map[int]Process {
	out := map[int]Process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range paths {
		line, err := os.ReadFile(path) //nolint:gosec // a path of /proc
		if err != nil {
			continue
		}
		p, err := ParseStat(line)
		if err != nil {
			continue
		}
		if info, err := os.Stat(filepath.Dir(path)); err == nil {
			if sys, ok := info.Sys().(*syscall.Stat_t); ok {
				p.UID = sys.Uid
			}
		}
		out[p.PID] = p
	}
	return out
}

// Tree returns root and its descendants, root first.
func Tree(all map[int]Process, root int) []Process {
	if _, ok := all[root]; !ok {
		return nil
	}
	children := map[int][]Process{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	out, seen := []Process{all[root]}, map[int]bool{root: true}
	for i := 0; i < len(out); i++ {
		for _, c := range children[out[i].PID] {
			if !seen[c.PID] {
				seen[c.PID] = true
				out = append(out, c)
			}
		}
	}
	return out
}

// StatusBytes reads a field in kB of a file such as /proc/PID/status or
// /proc/PID/smaps_rollup; 0 when it is not there.
func StatusBytes(path, field string) int64 {
	file, err := os.Open(path) //nolint:gosec // a path of /proc
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }() // only read
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), field+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return n << 10
	}
	return 0
}

// Memory is the proportional memory (PSS) of a process and its descendants: a page
// that several processes share counts once.
func Memory(root int) int64 {
	var sum int64
	for _, p := range Tree(Processes(), root) {
		sum += StatusBytes(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID), "Pss")
	}
	return sum
}
