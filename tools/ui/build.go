package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// findRoot is the folder ui of the repository, seen from here or from the root.
func findRoot() (string, error) {
	for _, dir := range []string{"ui", "../ui", "../../ui"} {
		if _, err := os.Stat(filepath.Join(dir, "vendor", "vendor.json")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("ui/vendor/vendor.json is not found: run this in the root of the repository")
}

// library is one entry of vendor.json.
type library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Integrity is the registry's sha512 of the published archive.
	Integrity string `json:"integrity"`
	Licence   string `json:"licence"`
	// Files are the paths in the archive by their names in ui/vendor, with their sha256.
	Files map[string]vendored `json:"files"`
	// Modules are the names under which source imports a file.
	Modules  map[string]string `json:"modules"`
	Reviewed string            `json:"reviewed"`
}

type vendored struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

func readLibraries(root string) ([]library, error) {
	data, err := os.ReadFile(filepath.Join(root, "vendor", "vendor.json"))
	if err != nil {
		return nil, err
	}
	var out []library
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("vendor.json: %w", err)
	}
	return out, nil
}

// bundle builds the page and returns its files by name.
func bundle(root string) (map[string][]byte, error) {
	libraries, err := readLibraries(root)
	if err != nil {
		return nil, err
	}
	alias := map[string]string{}
	for _, l := range libraries {
		for module, file := range l.Modules {
			alias[module] = filepath.Join(root, "vendor", file)
		}
		for name, want := range l.Files {
			data, err := os.ReadFile(filepath.Join(root, "vendor", name))
			if err != nil {
				return nil, err
			}
			if have := sum(data); have != want.SHA256 {
				return nil, fmt.Errorf("ui/vendor/%s has sha256 %s, and vendor.json says %s: fetch it again with ./task ui:vendor", name, have, want.SHA256)
			}
		}
	}
	result := api.Build(api.BuildOptions{
		EntryPointsAdvanced: []api.EntryPoint{{InputPath: filepath.Join(root, "src", "main.tsx"), OutputPath: "app"}},
		AbsWorkingDir:       root, Outdir: filepath.Join(root, "dist"), Bundle: true, Format: api.FormatESModule, Target: api.ES2022,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Alias: alias, Platform: api.PlatformBrowser, LogLevel: api.LogLevelSilent,
		TsconfigRaw: "{}", Charset: api.CharsetASCII,
	})
	if len(result.Errors) > 0 {
		return nil, errors.New(strings.Join(api.FormatMessages(result.Errors, api.FormatMessagesOptions{Kind: api.ErrorMessage}), "\n"))
	}
	out := map[string][]byte{}
	for _, f := range result.OutputFiles {
		out[filepath.Base(f.Path)] = f.Contents
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		if out[name], err = os.ReadFile(filepath.Join(root, "src", name)); err != nil {
			return nil, err
		}
	}
	if out["licences.txt"], err = licences(root, libraries); err != nil {
		return nil, err
	}
	out["manifest.json"], err = manifest(root)
	return out, err
}

// licences are those of all libraries in the bundle.
func licences(root string, libraries []library) ([]byte, error) {
	var b bytes.Buffer
	for _, l := range libraries {
		text, err := os.ReadFile(filepath.Join(root, "vendor", strings.NewReplacer("@", "", "/", "-").Replace(l.Name)+".LICENSE"))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s %s (%s)\n\n%s\n\n", l.Name, l.Version, l.Licence, bytes.TrimSpace(text))
	}
	return b.Bytes(), nil
}

// manifest lists the inputs with their sha256, so that a test without esbuild sees
// that dist is stale.
func manifest(root string) ([]byte, error) {
	inputs := map[string]string{}
	for _, dir := range []string{"src", "vendor"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			inputs[filepath.ToSlash(name)] = sum(data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(inputs, "", "  ")
	return append(data, '\n'), err
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// write replaces ui/dist.
func write(root string) error {
	files, err := bundle(root)
	if err != nil {
		return err
	}
	dist := filepath.Join(root, "dist")
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	var names []string
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dist, name), data, 0o644); err != nil {
			return err
		}
		names = append(names, fmt.Sprintf("%s %d", name, len(data)))
	}
	slices.Sort(names)
	fmt.Fprintln(os.Stdout, "ui/dist:", strings.Join(names, ", "))
	return nil
}
