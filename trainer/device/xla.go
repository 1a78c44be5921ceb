//go:build xla

package device

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla" // without its installer, so that nothing is downloaded
	"github.com/gomlx/go-xla/pjrt"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/gomlxhooks"
	"temper/trainer/xla/graphcache"
)

const withXLA = true

// Oldest version of the PJRT interface with all calls that this binary makes. The calls of
// go-xla go through the plugin's table unchecked: with an older plugin they would go to
// addresses that are not functions.
const (
	apiMajor = 0
	apiMinor = 104
)

// attachedPlugins are the plugins of the process whose programs go through
// trainer/xla/graphcache, by path: go-xla loads each once. device is the plugin's default
// device, for passes without a mesh; "" before it was opened.
var attachedPlugins = struct { //nolint:gochecknoglobals // see above
	sync.Mutex
	of     map[string]graphcache.Attached
	device map[string]string
}{of: map[string]graphcache.Attached{}, device: map[string]string{}}

// attachPlugin puts trainer/xla/graphcache between go-xla and a plugin.
func attachPlugin(path string, p *pjrt.Plugin) (graphcache.Attached, error) {
	attachedPlugins.Lock()
	defer attachedPlugins.Unlock()
	if a, ok := attachedPlugins.of[path]; ok {
		return a, nil
	}
	table, err := gomlxhooks.PluginTable(p)
	if err != nil {
		return graphcache.Attached{}, err
	}
	a, own, err := graphcache.Plugin{Library: path, Table: table.Pointer(), Offset: table.Offset}.Attach()
	if err != nil {
		return graphcache.Attached{}, err
	}
	table.Replace(own)
	attachedPlugins.of[path] = a
	return a, nil
}

// keepGraphs stores the programs of a backend on disk. Call it before the first of them.
func keepGraphs(path string, backend compute.Backend) error {
	p, err := pjrt.GetPlugin(path)
	if err != nil {
		return err
	}
	a, err := attachPlugin(path, p)
	if err != nil {
		return err
	}
	client, pointer, err := gomlxhooks.Client(backend)
	if err != nil {
		return err
	}
	kinds := make([]string, backend.NumDevices())
	for i := range kinds {
		kinds[i] = kindOf(backend.DeviceDescription(compute.DeviceNum(i)))
	}
	major, minor := p.Version()
	platform := fmt.Sprintf("%s %s, interface %d.%d", client.Platform(), client.PlatformVersion(), major, minor)
	a.Client(pointer, fmt.Sprintf("%s, %d devices: %q", platform, len(kinds), kinds))
	attachedPlugins.Lock()
	defer attachedPlugins.Unlock()
	attachedPlugins.device[path] = fmt.Sprintf("%s, %q", platform, kinds[0])
	return nil
}

// describeXLA returns Bits of a plugin's device; ok is false before it was opened.
func describeXLA(path string) (line string, ok bool, err error) {
	attachedPlugins.Lock()
	a, device := attachedPlugins.of[path], attachedPlugins.device[path]
	attachedPlugins.Unlock()
	if device == "" {
		return "", false, nil
	}
	line, err = a.Bits(device)
	return line, err == nil, err
}

// kindOf returns the description of a device without the parts that differ between processes.
func kindOf(description string) string {
	kind, _, _ := strings.Cut(description, " [processId=")
	return kind
}

// checkPlugin loads a plugin and refuses one with an interface that is too old.
func checkPlugin(path string) error {
	p, err := pjrt.GetPlugin(path)
	if err != nil {
		return err
	}
	if major, minor := p.Version(); major != apiMajor || minor < apiMinor {
		return fmt.Errorf("%w: it has version %d.%d of the PJRT interface, want %d.%d or newer", ErrPlugin, major, minor, apiMajor, apiMinor)
	}
	return nil
}

// InPlace lets XLA put results of a graph into the memory of donated inputs. Without it XLA
// allocates both, since go-xla states at the call, not in the program, which input is donated.
// Call it after the graph was built and before it is compiled. It does nothing for other
// backends.
func InPlace(g *graph.Graph, aliases []Alias) error {
	if g.Backend().Name() != xla.BackendName {
		return nil
	}
	program, err := gomlxhooks.Program(g)
	if err != nil {
		return err
	}
	for _, a := range aliases {
		if a.Input >= len(program.Inputs) {
			return fmt.Errorf("input %d of %d has no place in the program", a.Input, len(program.Inputs))
		}
		in := program.Inputs[a.Input]
		if in.Attributes == nil {
			in.Attributes = map[string]any{}
		}
		in.Attributes["tf.aliasing_output"] = int32(a.Output) //nolint:gosec // a graph has fewer results
	}
	return nil
}

// MemoryOf returns the report of XLA's compiler on the memory of a compiled graph, on each
// device. ok is false for other backends.
func MemoryOf(g *graph.Graph) (m CompiledMemory, ok bool, err error) {
	if g.Backend().Name() != xla.BackendName {
		return CompiledMemory{}, false, nil
	}
	loaded, err := gomlxhooks.LoadedExecutable(g)
	if err != nil {
		return CompiledMemory{}, false, err
	}
	s := loaded.OnDeviceMemoryUsageStats
	return CompiledMemory{Arguments: s.Inputs, Results: s.Outputs, Aliased: s.Aliases, Temporary: s.Temporary, Code: s.GeneratedCode}, true, nil
}
