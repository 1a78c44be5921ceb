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
	Name string `json:"name"`           // as the loader looks for it
	Path string `json:"path,omitempty"` // where it would be found; empty where it is missing
	// By names the library that asks for it; empty for the plugin itself.
	By string `json:"by,omitempty"`
	// Opened is true for a library that the plugin opens by itself when it works.
	Opened bool `json:"opened,omitempty"`
}

// systemDirs are where the loader looks after all else.
var systemDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// Needs lists the libraries that a plugin needs, in the order in which the loader meets
// them, with those that its libraries need in turn. opened are libraries that it opens by
// itself. Nothing is loaded. The error names a file that is no shared library of this
// machine.
func Needs(path string, opened []string) ([]Library, error) {
	names, dirs, err := dependencies(path)
	if err != nil {
		return nil, err
	}
	w := walk{plugin: dirs, seen: map[string]bool{}}
	w.take(names, "", dirs, false)
	w.take(opened, "", dirs, true)
	for i := 0; i < len(w.found); i++ {
		l := w.found[i]
		if l.Path == "" {
			continue
		}
		// A library of the system that cannot be read is the loader's business: the plugin
		// cannot help it.
		if names, dirs, err := dependencies(l.Path); err == nil {
			w.take(names, l.Name, dirs, false)
		}
	}
	return w.found, nil
}

// walk goes from a plugin to all that it needs.
type walk struct {
	plugin []string // the folders that the plugin names, which hold for all that it loads
	seen   map[string]bool
	found  []Library
}

// take adds libraries that another one asks for, which names folders of its own.
func (w *walk) take(names []string, by string, dirs []string, opened bool) {
	for _, name := range names {
		if !w.seen[name] {
			w.seen[name] = true
			w.found = append(w.found, Library{Name: name, By: by, Opened: opened, Path: findLibrary(name, slices.Concat(dirs, w.plugin))})
		}
	}
}

// Missing returns the names of the libraries that were not found.
func Missing(libraries []Library) []string {
	var out []string
	for _, l := range libraries {
		if l.Path == "" {
			out = append(out, l.Name)
		}
	}
	return out
}

// dependencies returns the libraries that a file is linked against, and the folders that
// it names for them.
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

// findLibrary returns where the loader would find a library; "" for nowhere.
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
