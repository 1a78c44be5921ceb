package jail

import (
	"bytes"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is what the private root holds: directories and files of the machine,
// bound read-only, and the symbolic links on the way to them. A program sees the
// interpreter in a place of ours where its own place lies in somebody's home.
type tree struct {
	binds    []bind
	symlinks [][2]string
	masks    []string // paths inside whose content is hidden
	unmasked int      // that are too many to hide
	moves    [][2]string
	paths    []string // sys.path inside
	python   string   // the interpreter inside
	// executables are the interpreter and the loader that the kernel starts it with.
	executables []string
	loads       []string // directories inside in which the loader has to look for libraries
}

// bind shows a path of the machine at a path inside, as setup carries it.
type bind [2]string

// Places inside for what lies in a private place of the machine.
const (
	movedBase  = "/opt/sandbox/python"
	movedVenv  = "/opt/sandbox/venv"
	movedOther = "/opt/sandbox/files"
)

// public are the places whose names say nothing about the machine's users.
var public = []string{"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/dev", "/nix", "/snap"}

// below reports whether path is one of roots or lies below one.
func below(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// rootTree works out what py needs to run and to import. With move, what lies in a
// private place is shown elsewhere. What masks lists is hidden.
func rootTree(py python, masks []string, move bool) tree {
	t := &tree{python: py.Executable}
	if move {
		t.planMoves(py)
		t.python = t.moved(py.Executable)
	}
	for _, dir := range py.Paths {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		t.add(dir)
		if inside := t.moved(dir); !slices.Contains(t.paths, inside) {
			t.paths = append(t.paths, inside)
		}
	}
	for _, lib := range py.Libraries {
		t.addLibrary(lib, py)
	}
	t.add(py.Executable)
	if loader, err := interpreterOf(py.Executable); err == nil {
		t.add(loader)
		t.executables = append(t.executables, realPath(loader))
	}
	t.executables = append(t.executables, t.python)
	for _, path := range []string{"/etc/ld.so.cache", "/etc/alternatives", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"} {
		if _, err := os.Stat(path); err == nil {
			t.add(path)
		}
	}
	for _, name := range []string{"/usr/bin/python3", "/usr/bin/python"} { // by which programs know it
		linked := slices.ContainsFunc(t.symlinks, func(l [2]string) bool { return l[0] == name })
		if !linked && !below(name, t.targets()...) {
			t.symlinks = append(t.symlinks, [2]string{name, t.python})
		}
	}
	// The C library keeps named semaphores there: in the /tmp of the call.
	t.symlinks = append(t.symlinks, [2]string{"/dev/shm", "/tmp"})
	t.minimize()
	t.unmasked = max(0, len(masks)-maxMasks)
	for _, path := range masks[:len(masks)-t.unmasked] {
		t.masks = append(t.masks, t.inside(path))
	}
	return *t
}

// planMoves gives each private prefix its place inside, by the name that it has and by
// the one that links lead to.
func (t *tree) planMoves(py python) {
	for i, prefix := range py.Prefixes {
		place := movedBase
		if i >= 2 { // of a virtual environment, unless it has been seen already
			place = movedVenv
		}
		for _, p := range []string{prefix, realPath(prefix)} {
			known := slices.ContainsFunc(t.moves, func(m [2]string) bool { return m[0] == p })
			if !known && !below(p, public...) {
				t.moves = append(t.moves, [2]string{p, place})
			}
		}
	}
	// A virtual environment may lie in the folder of its interpreter, or the other way round.
	slices.SortStableFunc(t.moves, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
}

// moving reports whether the private places have others inside.
func (t *tree) moving() bool { return len(t.moves) > 0 }

// moved returns where a path of the machine is seen inside.
func (t *tree) moved(path string) string {
	for _, m := range t.moves {
		if below(path, m[0]) {
			return m[1] + strings.TrimPrefix(path, m[0])
		}
	}
	if t.moving() && !below(path, public...) {
		return movedOther + path[strings.LastIndexByte(path, '/'):]
	}
	return path
}

func realPath(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// add notes path. A private one, by its name or by where its links lead, is bound as a
// whole where it is seen inside; the links on the way to a public one are made again.
func (t *tree) add(path string) {
	target := realPath(path)
	if t.moving() && (!below(path, public...) || !below(target, public...)) {
		t.binds = append(t.binds, bind{target, t.moved(path)})
		return
	}
	t.addLinks(path)
}

// addLinks notes path, following its symbolic links one component at a time.
func (t *tree) addLinks(path string) {
	for range 32 { // a chain of links is finite; a loop of links is given up
		link, target, ok := firstLink(path)
		if !ok {
			t.binds = append(t.binds, bind{path, path})
			return
		}
		t.symlinks = append(t.symlinks, [2]string{link, target})
		rest := strings.TrimPrefix(path, link)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, rest)
	}
}

// addLibrary notes the directory of a shared library where that is the machine's or the
// installation's. Elsewhere it is somebody's folder: only the library is taken, under
// the names that it has there.
func (t *tree) addLibrary(lib string, py python) {
	dir := filepath.Dir(lib)
	if slices.ContainsFunc(py.Paths, func(p string) bool { return below(dir, p, realPath(p)) }) {
		return
	}
	if below(dir, public...) || slices.ContainsFunc(py.Prefixes, func(p string) bool {
		return dir == realPath(filepath.Join(p, "lib"))
	}) {
		t.add(dir)
		t.loadFrom(dir)
		return
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return // the library was there a moment ago; an import that needs it will say so
	}
	for _, entry := range names {
		name := filepath.Join(dir, entry.Name())
		if name == lib || entry.Type()&fs.ModeSymlink != 0 && realPath(name) == lib {
			t.binds = append(t.binds, bind{lib, t.moved(name)})
			t.loadFrom(name)
		}
	}
}

// loadFrom tells the loader of a directory that has moved.
func (t *tree) loadFrom(path string) {
	inside := t.moved(path)
	if inside == path {
		return
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		inside = filepath.Dir(inside)
	}
	if !slices.Contains(t.loads, inside) {
		t.loads = append(t.loads, inside)
	}
}

// firstLink finds the first component of path that is a symbolic link.
func firstLink(path string) (link, target string, ok bool) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		target, err := os.Readlink(path[:i])
		if err == nil {
			return path[:i], target, true
		}
	}
	return "", "", false
}

// minimize drops what another bind already contains, and duplicates.
func (t *tree) minimize() {
	slices.SortFunc(t.binds, func(a, b bind) int {
		return strings.Compare(a[1]+"\x00"+a[0], b[1]+"\x00"+b[0])
	})
	t.binds = slices.Compact(t.binds)
	all := slices.Clone(t.binds)
	t.binds = slices.DeleteFunc(t.binds, func(b bind) bool {
		return slices.ContainsFunc(all, func(other bind) bool {
			rest, ok := strings.CutPrefix(b[1], other[1]+"/")
			return ok && b[0] == other[0]+"/"+rest
		})
	})
	slices.SortFunc(t.symlinks, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	t.symlinks = slices.Compact(t.symlinks)
	t.symlinks = slices.DeleteFunc(t.symlinks, func(l [2]string) bool {
		return slices.ContainsFunc(t.binds, func(b bind) bool { return strings.HasPrefix(l[0], b[1]+"/") })
	})
}

// targets are the paths inside that are bound.
func (t *tree) targets() []string {
	var list []string
	for _, b := range t.binds {
		list = append(list, b[1])
	}
	return list
}

// maxMasks bounds the mounts that hide something: every call gets a copy of each.
const maxMasks = 64

// findMasks lists the dot files among the packages of py, those first that packages do
// not bring along themselves.
func findMasks(py python) []string {
	var masks []string
	for _, dir := range py.Packages {
		masks = appendDotFiles(masks, realPath(dir))
	}
	slices.Sort(masks)
	masks = slices.Compact(masks)
	last := func(path string) int {
		if slices.Contains(harmless, filepath.Base(path)) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(masks, func(a, b string) int { return last(a) - last(b) })
	return masks
}

// appendDotFiles adds the dot files below a directory of packages: what lies there
// besides modules, such as .env and .git, is its owner's. Libraries that wheels brought
// along under .libs stay.
func appendDotFiles(masks []string, root string) []string {
	// What cannot be read here cannot be read by a program either.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil || path == root:
			return nil
		case name == "__pycache__" && entry.IsDir():
			return fs.SkipDir
		case name[0] != '.' || name == ".libs":
			return nil
		}
		if entry.Type()&fs.ModeSymlink == 0 { // a link shows nothing that is not shown anyway
			masks = append(masks, path)
		}
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return masks
}

// inside returns where a bound directory of the machine is seen.
func (t *tree) inside(path string) string {
	for _, b := range t.binds {
		if below(path, b[0]) {
			return b[1] + strings.TrimPrefix(path, b[0])
		}
	}
	return path
}

// harmless are the dot files that packages bring along themselves, which are hidden last.
var harmless = []string{".gitignore", ".gitattributes", ".gitkeep", ".keep", ".placeholder", ".npmignore", ".editorconfig", ".coveragerc", ".clang-format"}

// interpreterOf returns the dynamic loader that an executable names.
func interpreterOf(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written through it
	for _, prog := range file.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(name, 0); err != nil {
			return "", err
		}
		return string(bytes.TrimRight(name, "\x00")), nil
	}
	return "", errors.New("statically linked")
}
