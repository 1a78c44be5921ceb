package device

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // the backend that every build has

	"temper/trainer/xla/plugin"
)

// Errors of Open. Callers use errors.Is.
var (
	// ErrName means that a name has none of the forms of the package.
	ErrName = errors.New("unknown backend")
	// ErrNotBuilt means that the binary lacks the backend.
	ErrNotBuilt = errors.New("not in this build")
	// ErrNoPlugin means that the shared library of a backend is missing.
	ErrNoPlugin = plugin.ErrNone
	// ErrPlugin means that the shared library cannot be used.
	ErrPlugin = errors.New("unusable plugin")
	// ErrNoDevice means that the backend works and finds no device.
	ErrNoDevice = errors.New("no device")
)

// DefaultName is the backend of an empty name.
const DefaultName = "go"

// Families of backends.
const (
	familyGo  = "go"
	familyXLA = "xla"
)

// formsXLA lists the forms of the names of XLA backends.
const formsXLA = "xla:cuda, xla:rocm, xla:cpu, xla:/path/of/plugin.so"

// Open starts the backend with the given name; see the package's documentation for the forms.
// The empty name is DefaultName. The caller finalizes the backend.
// Errors: ErrName, ErrNotBuilt, ErrNoPlugin, ErrNoDevice, or the error of the library.
func Open(name string) (compute.Backend, error) {
	if name == "" {
		name = DefaultName
	}
	backend, err := openFamily(name)
	if err != nil {
		return nil, fmt.Errorf("backend %q: %w", name, err)
	}
	return backend, nil
}

// Check returns the errors of Open that are known without starting the backend: a wrong
// name, a build without the backend and a missing library.
func Check(name string) error {
	if name == "" {
		name = DefaultName
	}
	if _, err := resolve(name); err != nil {
		return fmt.Errorf("backend %q: %w", name, err)
	}
	return nil
}

// openFamily opens a backend of the family in the name.
func openFamily(name string) (compute.Backend, error) {
	full, err := resolve(name)
	if err != nil {
		return nil, err
	}
	if library, ok := strings.CutPrefix(full, familyXLA+":"); ok {
		return startXLA(library)
	}
	return startBackend(full)
}

// startXLA starts the plugin of a library with options. Tensors on the host and on the device
// are separate even if both are the same memory: a tensor that a program updates in place must
// belong to the device alone.
func startXLA(config string) (compute.Backend, error) {
	path, options, _ := strings.Cut(config, ",")
	if needs, err := plugin.Needs(path, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlugin, err)
	} else if missing := plugin.Missing(needs); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s needs libraries that this system lacks: %s", ErrPlugin, path, strings.Join(missing, ", "))
	}
	keepBits(path)
	if err := checkPlugin(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, oneLine(err))
	}
	config = familyXLA + ":" + path
	if !strings.Contains(options, "shared_buffers") {
		config += ",noshared_buffers"
	}
	if options != "" {
		config += "," + options
	}
	backend, err := startBackend(config)
	if err != nil {
		return nil, err
	}
	if err := keepGraphs(path, backend); err != nil {
		slog.Warn("compiled programs are neither kept nor counted", "backend", path, "err", firstLine(err))
	}
	return backend, nil
}

// resolve completes a name with the path of its library.
func resolve(name string) (string, error) {
	family, rest, colon := strings.Cut(name, ":")
	switch family {
	case familyGo:
		return name, nil
	case familyXLA:
		library, options, _ := strings.Cut(rest, ",")
		if library == "" {
			return "", fmt.Errorf("%w: xla needs a library after the colon: %s", ErrName, formsXLA)
		}
		if !withXLA {
			return "", fmt.Errorf("%w: build it with ./task build:xla (go build -tags xla, needs a C compiler)", ErrNotBuilt)
		}
		path, err := libraryPath(library)
		if err != nil {
			return "", err
		}
		if options != "" {
			path += "," + options
		}
		return family + ":" + path, nil
	}
	if colon {
		return "", fmt.Errorf("%w family %q: want go or xla", ErrName, family)
	}
	return "", fmt.Errorf("%w: want go, %s", ErrName, formsXLA)
}

// libraryPath finds the shared library, given an absolute path or the name of a plugin.
func libraryPath(library string) (string, error) {
	if !filepath.IsAbs(library) {
		if strings.ContainsRune(library, filepath.Separator) {
			return "", fmt.Errorf("%w: %s is not an absolute path", ErrName, library)
		}
		return plugin.Find(library)
	}
	info, err := os.Stat(library)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %s", ErrNoPlugin, library)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%w: %s is not a file", ErrNoPlugin, library)
	}
	return library, nil
}

// startBackend starts the backend and checks that it has a device. The constructors panic on a
// foreign library, and return typed nil pointers beside their errors.
func startBackend(config string) (backend compute.Backend, err error) {
	defer func() {
		if p := recover(); p != nil {
			backend, err = nil, fmt.Errorf("start: %v", p)
		}
	}()
	backend, err = compute.NewWithConfig(config)
	if err != nil && strings.Contains(err.Error(), "No visible GPU devices") { // the text of PJRT's GPU plugins
		return nil, fmt.Errorf("%w: the plugin loads and sees no GPU", ErrNoDevice)
	}
	if err != nil {
		return nil, fmt.Errorf("start: %s", firstLine(err))
	}
	if n := backend.NumDevices(); n < 1 {
		backend.Finalize()
		return nil, fmt.Errorf("%w: the library loads but drives %d devices", ErrNoDevice, n)
	}
	return backend, nil
}

// oneLine cuts the stack off the error of a library; errors of this program have none.
func oneLine(err error) error {
	if errors.Is(err, ErrPlugin) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrPlugin, firstLine(err))
}

// firstLine returns the text of an error without the stack that some libraries append.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// LibraryOf returns the path of the library of an XLA backend; "" for other backends, and if
// Check finds a mistake.
func LibraryOf(name string) string {
	full, err := resolve(cmp.Or(name, DefaultName))
	library, ok := strings.CutPrefix(full, familyXLA+":")
	if err != nil || !ok {
		return ""
	}
	library, _, _ = strings.Cut(library, ",")
	return library
}
