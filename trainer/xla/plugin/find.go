package plugin

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// PathEnv names the folders, separated by colons, that are searched for plugins
// instead of the usual ones. go-xla and JAX read the same variable.
const PathEnv = "PJRT_PLUGIN_LIBRARY_PATH"

// ErrNone means that no plugin has the name.
var ErrNone = errors.New("no such library")

// Plugin is a PJRT plugin on this machine. The device that it drives may be absent.
type Plugin struct {
	Name string // the name after "xla:"
	Path string // absolute
}

// userDir is the folder of plugins below a home.
const userDir = ".local/lib/go-xla"

// DefaultDir returns the folder for plugins when the user names none: the first folder of
// PathEnv, or the folder of plugins in the user's home. Find looks there.
func DefaultDir() (string, error) {
	if path, ok := os.LookupEnv(PathEnv); ok {
		for _, dir := range filepath.SplitList(path) {
			if filepath.IsAbs(dir) {
				return dir, nil
			}
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for plugins: %w; name one with --dir", err)
	}
	return filepath.Join(home, userDir), nil
}

// pluginFile matches the file names under which PJRT plugins are installed.
var pluginFile = regexp.MustCompile(`^(?:pjrt_c_api_(.+)_plugin|pjrt[-_]plugin[-_](.+))\.so$`)

// List returns the PJRT plugins in the search path, sorted by name. The first one in
// the path wins where several have the same name.
func List() []Plugin {
	found := map[string]string{}
	for _, dir := range Dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // most folders of the path exist on few machines
		}
		for _, e := range entries {
			m := pluginFile.FindStringSubmatch(e.Name())
			if m == nil {
				continue
			}
			name := cmp.Or(m[1], m[2])
			if _, ok := found[name]; !ok {
				found[name] = filepath.Join(dir, e.Name())
			}
		}
	}
	out := make([]Plugin, 0, len(found))
	for name, path := range found {
		out = append(out, Plugin{Name: name, Path: path})
	}
	slices.SortFunc(out, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Find returns the path of the plugin with the name, or of its newest version ("cpu" also
// matches "cpu_v0.114.0"). Error: ErrNone, with the plugins found and the folders searched.
func Find(name string) (string, error) {
	plugins := List()
	best := -1
	var found []string
	for i, p := range plugins {
		if p.Name == name {
			return p.Path, nil
		}
		if strings.HasPrefix(p.Name, name+"_v") {
			best = i // the list is sorted
		}
		found = append(found, p.Name+" ("+p.Path+")")
	}
	if best >= 0 {
		return plugins[best].Path, nil
	}
	if len(found) == 0 {
		found = []string{"none"}
	}
	install := ""
	if _, err := PinOf(name); err == nil {
		install = ", or fetch it with temper backend install " + name
	}
	return "", fmt.Errorf("%w: plugin %s; found: %s; looked in %s. Set %s, give the plugin's path as xla:/path/of/plugin.so%s",
		ErrNone, name, strings.Join(found, ", "), strings.Join(Dirs(), ":"), PathEnv, install)
}

// Dirs returns the search path, the same as in go-xla.
func Dirs() []string {
	if path, ok := os.LookupEnv(PathEnv); ok {
		return slices.DeleteFunc(filepath.SplitList(path), func(d string) bool { return d == "" })
	}
	var dirs []string
	if home, err := os.UserHomeDir(); err == nil {
		local := filepath.Join(home, userDir)
		dirs = append(dirs, local, filepath.Join(local, "nvidia"))
	}
	dirs = append(dirs, "/usr/local/lib/go-xla", "/usr/local/lib/go-xla/nvidia")
	for _, d := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, d)
		}
	}
	return append(dirs, loaderDirs("/etc/ld.so.conf")...)
}

// loaderDirs returns the folders that the dynamic loader's configuration names, following
// its include lines one level deep.
func loaderDirs(path string) []string {
	var dirs []string
	for _, line := range configLines(path) {
		pattern, included := strings.CutPrefix(line, "include ")
		if !included {
			dirs = append(dirs, line)
			continue
		}
		files, _ := filepath.Glob(strings.TrimSpace(pattern)) // fails for a malformed pattern, which names no file
		for _, f := range files {
			dirs = append(dirs, configLines(f)...)
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return !filepath.IsAbs(d) })
}

// configLines returns the lines of a file without comments and blank lines.
func configLines(path string) []string {
	f, err := os.Open(path) //nolint:gosec // a file of /etc, named by the system
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // read only
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
