package device

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"temper/trainer/xla/graphcache"
)

// describing serializes the opening of devices for their description.
var describing sync.Mutex //nolint:gochecknoglobals // devices are of the process

// Bits returns one line of fields NAME=VALUE with everything that decides the bits of this
// process's results on the device of a backend. If two lines are equal, the same computation
// has the same bits. It is empty for the Go backend, whose kernels trainer/cpu/kernels
// describes. Bits opens and closes a device that this process has not opened.
// Errors: the errors of Open, and ErrPlugin for a device that cannot be described.
func Bits(name string) (string, error) {
	if Threads(name) {
		return "", nil
	}
	full, err := resolve(name)
	if err != nil {
		return "", fmt.Errorf("backend %q: %w", name, err)
	}
	family, rest, _ := strings.Cut(full, ":")
	library, options, _ := strings.Cut(rest, ",")
	var line string
	if family == familyXLA {
		line, err = bitsOfXLA(name, library)
	} else {
		line, err = graphcache.Bits(library, family+" cpu")
	}
	if err != nil {
		return "", fmt.Errorf("backend %q: describe the device: %w", name, err)
	}
	return fmt.Sprintf("%s options=%s", line, decidingOptions(options)), nil
}

func bitsOfXLA(name, library string) (string, error) {
	describing.Lock()
	defer describing.Unlock()
	if line, ok, err := describeXLA(library); ok || err != nil {
		return line, err
	}
	backend, err := Open(name)
	if err != nil {
		return "", err
	}
	backend.Finalize()
	line, ok, err := describeXLA(library)
	if err == nil && !ok {
		err = ErrPlugin
	}
	return line, err
}

// decidingOptions returns the options of a backend, sorted, without the options for memory.
func decidingOptions(options string) string {
	all := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return o == "" || slices.Contains(memoryOptions, name)
	})
	slices.Sort(all)
	return strings.Join(all, ",")
}

// memoryOptions place tensors on a device and change no bit.
var memoryOptions = []string{"preallocate", "memory_fraction", "shared_buffers", "noshared_buffers"}
