package plugin

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Library is a shared library that a plugin needs from the system.
type Library struct {
	Name string `json:"name"`           // the name that the loader searches
	Path string `json:"path,omitempty"` // where the loader finds it; empty when it is missing
	// By names the library that is linked against it; empty for the plugin.
	By string `json:"by,omitempty"`
	// Opened is true for a library that the plugin opens at run time.
	Opened bool `json:"opened,omitempty"`
}

// systemDirs are the folders that the loader searches last.
var systemDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// Needs lists the libraries that a plugin needs, in the loader's order, including the needs of
// those libraries. opened names libraries that the plugin opens at run time. Needs
// loads nothing. The error names a file that is not a shared library of this machine.
func Needs(path string, opened []string) ([]Library, error) {
	names, dirs, err := dependencies(path)
	if err != nil {
		return nil, err
	}
	w := walk{plugin: dirs, seen: map[string]bool{}}
	w.add(names, "", dirs, false)
	w.add(opened, "", dirs, true)
	for i := 0; i < len(w.found); i++ {
		l := w.found[i]
		if l.Path == "" {
			continue
		}
		// The loader reports a library of the system that cannot be read.
		if names, dirs, err := dependencies(l.Path); err == nil {
			w.add(names, l.Name, dirs, false)
		}
	}
	return w.found, nil
}

// walk collects the libraries that a plugin needs.
type walk struct {
	plugin []string // folders that the plugin names; they hold for every library below it
	seen   map[string]bool
	found  []Library
}

// add adds the libraries that the library by needs. dirs are the folders that it names.
func (w *walk) add(names []string, by string, dirs []string, opened bool) {
	for _, name := range names {
		if !w.seen[name] {
			w.seen[name] = true
			w.found = append(w.found, Library{Name: name, By: by, Opened: opened, Path: findLibrary(name, slices.Concat(dirs, w.plugin))})
		}
	}
}

// Missing returns the names of the libraries without a path.
func Missing(libraries []Library) []string {
	var out []string
	for _, l := range libraries {
		if l.Path == "" {
			out = append(out, l.Name)
		}
	}
	return out
}

// dependencies returns the libraries that a file is linked against, and the folders in
// which it looks for them.
func dependencies(path string) (names, dirs []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is not a shared library: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // read only
	if f.Type != elf.ET_DYN || f.Machine != elf.EM_X86_64 {
		return nil, nil, fmt.Errorf("%s is not a shared library for x86-64: %v of %v", path, f.Type, f.Machine)
	}
	if names, err = f.ImportedLibraries(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, err := f.DynString(tag)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, v := range values {
			for _, dir := range filepath.SplitList(v) {
				dir = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir)
				dirs = append(dirs, filepath.Clean(dir))
			}
		}
	}
	return names, dirs, nil
}

// findLibrary returns the path at which the loader finds a library, or "".
func findLibrary(name string, dirs []string) string {
	all := slices.Concat(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), dirs, loaderDirs("/etc/ld.so.conf"), systemDirs)
	for _, dir := range all {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
