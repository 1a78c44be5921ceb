package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a line of /proc/PID/maps, or a part of what it covers.
type mapping struct {
	from, to uint64
	mode     string // rwxp
	name     string // of its file; "" for anonymous memory
	kind     string // [heap], [stack] and the like
}

func (m *mapping) shared() bool { return m.mode[3] == 's' }

// special mappings belong to the kernel and are the same everywhere.
func (m *mapping) special() bool { return strings.HasPrefix(m.kind, "[v") }

func (m *mapping) protection() uint64 {
	var p uint64
	for i, bit := range []uint64{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if m.mode[i] != '-' {
			p |= bit
		}
	}
	return p
}

func (t *tracee) mappings() ([]mapping, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return nil, err
	}
	var all []mapping
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("maps: %q", line)
		}
		from, to, _ := strings.Cut(fields[0], "-")
		m := mapping{mode: fields[1]}
		if m.from, err = strconv.ParseUint(from, 16, 64); err == nil {
			m.to, err = strconv.ParseUint(to, 16, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		switch {
		case len(fields) > 5 && fields[5][0] == '[':
			m.kind = fields[5]
		case m.shared() && strings.HasPrefix(fields[len(fields)-2], "/memfd:call"):
			m.name = fields[2] + " the memory of the kernel" // each has its own
		case len(fields) > 5: // with its place in the file, since two parts may change places
			m.name = fields[2] + strings.Join(fields[3:], " ")
		}
		if all = append(all, m); len(all) > maxMappings {
			return nil, errors.New("it has too many mappings")
		}
	}
	return all, nil
}

// heapEnd is where the heap of a process ends; 0 without one.
func heapEnd(all []mapping) uint64 {
	var end uint64
	for i := range all {
		if all[i].kind == "[heap]" {
			end = max(end, all[i].to)
		}
	}
	return end
}

// remap gives the target the mappings of the source, and returns those of the source and
// the stretches that the target got anew. What the source has mapped since its start becomes
// memory of the target's own, also where it comes from a file.
func (t *tracee) remap(source *tracee) (all, fresh []mapping, err error) {
	all, err = source.mappings()
	if err != nil {
		return nil, nil, err
	}
	have, err := t.mappings()
	if err != nil {
		return nil, nil, err
	}
	if end := heapEnd(all); end != heapEnd(have) {
		if err := t.call(unix.SYS_BRK, end); err != nil {
			return nil, nil, err
		}
		if have, err = t.mappings(); err != nil {
			return nil, nil, err
		}
	}
	var at []uint64
	for _, list := range [][]mapping{all, have} {
		for i := range list {
			at = append(at, list[i].from, list[i].to)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	restWanted, restHad := all, have
	for i := range len(at) - 1 {
		from, to := at[i], at[i+1]
		want, is := covering(&restWanted, from), covering(&restHad, from)
		renewed, err := t.adjust(from, to, want, is)
		if err != nil {
			return nil, nil, err
		}
		if renewed {
			fresh = append(fresh, mapping{from: from, to: to, name: want.name})
		}
	}
	return all, fresh, nil
}

// covering returns the mapping at an address, nil for none. Addresses come in order: what
// lies below is dropped from the list.
func covering(list *[]mapping, at uint64) *mapping {
	rest := *list
	for len(rest) > 0 && rest[0].to <= at {
		rest = rest[1:]
	}
	*list = rest
	if len(rest) == 0 || rest[0].from > at {
		return nil
	}
	return &rest[0]
}

// adjust makes what the target has between two addresses what the source has there. It
// reports whether that is fresh memory.
func (t *tracee) adjust(from, to uint64, want, is *mapping) (fresh bool, err error) {
	switch {
	case want == nil && is == nil, want != nil && want.special(), is != nil && is.special():
		return false, nil
	case want == nil:
		return false, t.call(unix.SYS_MUNMAP, from, to-from)
	case is != nil && want.name == is.name && want.shared() == is.shared():
		if want.mode == is.mode {
			return false, nil
		}
		return false, t.call(unix.SYS_MPROTECT, from, to-from, want.protection())
	case want.shared():
		return false, errors.New("it shares memory")
	}
	flags := uint64(unix.MAP_FIXED | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS)
	if want.kind == "[stack]" {
		flags |= unix.MAP_GROWSDOWN
	}
	return true, t.call(unix.SYS_MMAP, from, to-from, want.protection(), flags, ^uint64(0), 0)
}

// Bits of an entry of /proc/PID/pagemap.
const (
	pagePresent   = 1 << 63
	pageSwapped   = 1 << 62
	pageExclusive = 1 << 56
)

// copyPages copies what the source has written since it was made, and what it has where the
// target has fresh memory. Pages that either of them does not share with the interpreter
// differ; all others are the same pages.
func (t *tracee) copyPages(source *tracee, all, fresh []mapping) error {
	c := copier{from: source, to: t, left: maxCopy, size: uint64(os.Getpagesize())}
	for _, side := range []*tracee{source, t} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", side.pid))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // only read
		c.maps = append(c.maps, file)
	}
	for _, m := range all {
		if m.shared() || m.special() {
			continue
		}
		if err := c.stretch(m.from, m.to, func(a, b uint64) bool { return (a|b)&pageExclusive != 0 && (a|b)&(pagePresent|pageSwapped) != 0 }); err != nil {
			return err
		}
	}
	for _, m := range fresh {
		if err := c.stretch(m.from, m.to, func(a, _ uint64) bool { return m.name != "" || a&(pagePresent|pageSwapped) != 0 }); err != nil {
			return err
		}
	}
	return nil
}

// copier copies pages from one process to another.
type copier struct {
	from, to *tracee
	maps     []*os.File // pagemaps of both
	left     uint64     // bytes that may still be copied
	size     uint64     // of a page
	buffer   []byte
}

// stretch copies the pages between two addresses that wanted picks by their entries.
func (c *copier) stretch(from, to uint64, wanted func(a, b uint64) bool) error {
	n := (to - from) / c.size
	var entries [2][]byte
	for i, file := range c.maps {
		entries[i] = make([]byte, 8*n)
		if _, err := file.ReadAt(entries[i], int64(from/c.size*8)); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("pages: %w", err)
		}
	}
	u64 := binary.NativeEndian.Uint64
	for i := uint64(0); i < n; i++ {
		first := i
		for i < n && wanted(u64(entries[0][8*i:]), u64(entries[1][8*i:])) {
			i++
		}
		if i == first {
			continue
		}
		if err := c.run(from+first*c.size, from+i*c.size); err != nil {
			return err
		}
	}
	return nil
}

// run copies pages that lie side by side. A file may end before its mapping, and what lies
// behind its end cannot be read: there is nothing to copy.
func (c *copier) run(from, to uint64) error {
	if to-from > c.left {
		return fmt.Errorf("it has written more than %d bytes", maxCopy)
	}
	c.left -= to - from
	if uint64(len(c.buffer)) < to-from {
		c.buffer = make([]byte, to-from)
	}
	n, err := c.from.mem.ReadAt(c.buffer[:to-from], int64(from))
	if n == 0 && err != nil {
		return nil
	}
	_, err = c.to.mem.WriteAt(c.buffer[:n], int64(from))
	return err
}
