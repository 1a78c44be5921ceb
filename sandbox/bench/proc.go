package bench

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

// process is what /proc/PID/stat tells of one.
type process struct {
	pid, parent int
	uid         uint32
	cpu         time.Duration // its own and that of children it has waited for
	rss         int64
}

// tick is the unit of times in /proc, 1/100 s on every architecture of Linux.
const tick = 10 * time.Millisecond

// parseStat reads a line of /proc/PID/stat.
func parseStat(line []byte) (process, error) {
	// The name in parentheses may hold anything; fields are counted after it.
	end := bytes.LastIndexByte(line, ')')
	open := bytes.IndexByte(line, '(')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("stat %.40q: no name", line)
	}
	fields := strings.Fields(string(line[end+1:]))
	const ppid, utime, cstime, rss = 1, 11, 14, 21
	if len(fields) <= rss {
		return process{}, fmt.Errorf("stat %.40q: %d fields", line, len(fields))
	}
	var p process
	var err error
	number := func(text string) int64 {
		n, e := strconv.ParseInt(text, 10, 64)
		if err == nil {
			err = e
		}
		return n
	}
	p.pid = int(number(strings.TrimSpace(string(line[:open]))))
	p.parent = int(number(fields[ppid]))
	for i := utime; i <= cstime; i++ { // utime, stime, cutime, cstime
		p.cpu += time.Duration(number(fields[i])) * tick
	}
	p.rss = number(fields[rss]) * int64(os.Getpagesize())
	return p, err
}

// processes reads all that are visible; those that end meanwhile are left out.
func processes() map[int]process {
	out := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range paths {
		line, err := os.ReadFile(path) //nolint:gosec // a path of /proc
		if err != nil {
			continue
		}
		p, err := parseStat(line)
		if err != nil {
			continue
		}
		if info, err := os.Stat(filepath.Dir(path)); err == nil {
			if sys, ok := info.Sys().(*syscall.Stat_t); ok {
				p.uid = sys.Uid
			}
		}
		out[p.pid] = p
	}
	return out
}

// tree returns root and its descendants, root first.
func tree(all map[int]process, root int) []process {
	if _, ok := all[root]; !ok {
		return nil
	}
	children := map[int][]process{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	out, seen := []process{all[root]}, map[int]bool{root: true}
	for i := 0; i < len(out); i++ {
		for _, c := range children[out[i].pid] {
			if !seen[c.pid] {
				seen[c.pid] = true
				out = append(out, c)
			}
		}
	}
	return out
}

// statusBytes reads a field in kB of a file such as /proc/PID/status or
// /proc/PID/smaps_rollup; 0 when it is not there.
func statusBytes(path, field string) int64 {
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
