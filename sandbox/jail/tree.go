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

// tree is the content of the private root: directories and files of the machine, bound
// read-only, and the symbolic links on the way to them. An interpreter in a private folder
// of the machine gets a neutral path inside.
type tree struct {
	binds    []bind
	symlinks [][2]string
	masks    []string // hidden paths inside
	unmasked int      // dot files beyond maxMasks
	moves    [][2]string
	paths    []string // sys.path, as seen inside
	python   string   // the interpreter, as seen inside
	// executables lists the interpreter and its dynamic loader.
	executables []string
	loads       []string // library directories for the loader, as seen inside
}

// bind maps a path of the machine to a path inside, as setup carries it.
type bind [2]string

// Paths inside for private paths of the machine.
const (
	movedBase  = "/opt/sandbox/python"
	movedVenv  = "/opt/sandbox/venv"
	movedOther = "/opt/sandbox/files"
)

// public lists the paths whose names reveal nothing about the machine's users.
var public = []string{"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/dev", "/nix", "/snap"}

// below reports whether path is one of roots or lies below one.
func below(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// rootTree lists what py needs to run and to import. With move, private paths get another
// path inside. The paths in masks are hidden.
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
	for _, name := range []string{"/usr/bin/python3", "/usr/bin/python"} { // common paths of the interpreter
		linked := slices.ContainsFunc(t.symlinks, func(l [2]string) bool { return l[0] == name })
		if !linked && !below(name, t.targets()...) {
			t.symlinks = append(t.symlinks, [2]string{name, t.python})
		}
	}
	// The C library keeps named semaphores there; they go into the /tmp of the call.
	t.symlinks = append(t.symlinks, [2]string{"/dev/shm", "/tmp"})
	t.minimize()
	t.unmasked = max(0, len(masks)-maxMasks)
	for _, path := range masks[:len(masks)-t.unmasked] {
		t.masks = append(t.masks, t.inside(path))
	}
	return *t
}

// planMoves gives each private prefix a path inside, under its name and under the name
// after resolving links.
func (t *tree) planMoves(py python) {
	for i, prefix := range py.Prefixes {
		place := movedBase
		if i >= 2 { // the prefix of a virtual environment, unless it is known
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

// moving reports whether private paths have another path inside.
func (t *tree) moving() bool { return len(t.moves) > 0 }

// moved returns the path inside of a path of the machine.
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

// add adds path. A private path, by its name or after resolving links, is bound as a whole
// at its path inside; for a public path the links on the way are made again.
func (t *tree) add(path string) {
	target := realPath(path)
	if t.moving() && (!below(path, public...) || !below(target, public...)) {
		t.binds = append(t.binds, bind{target, t.moved(path)})
		return
	}
	t.addLinks(path)
}

// addLinks adds path and follows its symbolic links one component at a time.
func (t *tree) addLinks(path string) {
	for range 32 { // bounds a loop of links
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

// addLibrary adds the directory of a shared library if it belongs to the machine or to the
// installation. From a private folder it adds only the library, under its names there.
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
		return // the library has vanished; an import that needs it will fail
	}
	for _, entry := range names {
		name := filepath.Join(dir, entry.Name())
		if name == lib || entry.Type()&fs.ModeSymlink != 0 && realPath(name) == lib {
			t.binds = append(t.binds, bind{lib, t.moved(name)})
			t.loadFrom(name)
		}
	}
}

// loadFrom adds a moved directory to the search path of the loader.
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

// firstLink returns the first component of path that is a symbolic link.
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

// minimize drops duplicates and paths that another bind contains.
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

// targets returns the bound paths inside.
func (t *tree) targets() []string {
	var list []string
	for _, b := range t.binds {
		list = append(list, b[1])
	}
	return list
}

// maxMasks bounds the hiding mounts: every call gets a copy of each.
const maxMasks = 64

// findMasks lists the dot files among the packages of py. Dot files that packages usually
// ship come last.
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

// appendDotFiles adds the dot files below a directory of packages. Beside modules, files
// such as .env and .git are private. Libraries of wheels under .libs stay visible.
func appendDotFiles(masks []string, root string) []string {
	// A program cannot read a directory that the owner cannot read.
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
		if entry.Type()&fs.ModeSymlink == 0 { // a link reveals nothing new
			masks = append(masks, path)
		}
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return masks
}

// inside returns the path inside of a bound directory of the machine.
func (t *tree) inside(path string) string {
	for _, b := range t.binds {
		if below(path, b[0]) {
			return b[1] + strings.TrimPrefix(path, b[0])
		}
	}
	return path
}

// harmless lists the dot files that packages usually ship; they are hidden last.
var harmless = []string{".gitignore", ".gitattributes", ".gitkeep", ".keep", ".placeholder", ".npmignore", ".editorconfig", ".coveragerc", ".clang-format"}

// interpreterOf returns the dynamic loader that an executable names.
func interpreterOf(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it is only read
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
