package plugin

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
)

// Pin is a trusted build of a plugin: a wheel of the Python package registry.
type Pin struct {
	Name    string // the name after "xla:"
	Package string // of the registry
	Version string
	Wheel   string // file name in the registry
	SHA256  string // of the wheel, in hexadecimal
	Size    int64  // of the wheel, in bytes
	Member  string // path of the plugin in the wheel
	// Opened are the libraries that the plugin opens at run time. It is not linked against
	// them.
	Opened []string
	// Note tells the user the plugin's purpose or requirements.
	Note string
}

// pins are the builds for 64-bit Linux on x86.
var pins = []Pin{
	{
		Name: "cpu", Package: "lammps-jax-pjrt-cpu", Version: "0.11.2",
		Wheel:  "lammps_jax_pjrt_cpu-0.11.2-py3-none-manylinux_2_27_x86_64.whl",
		SHA256: "1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1", Size: 62711338,
		Member: "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
		Note:   "four devices on the CPU, to try meshes on any machine; slower than the backend go",
	},
	{
		Name: "cuda", Package: "jax-cuda13-pjrt", Version: "0.12.0.1",
		Wheel:  "jax_cuda13_pjrt-0.12.0.1-py3-none-manylinux_2_27_x86_64.whl",
		SHA256: "5899bb6177eda86ea532afb9a26794f2bdd04966f6a01f9028266b16c2b6cf90", Size: 134922808,
		Member: "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
		Opened: []string{
			"libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12",
			"libcupti.so.13", "libcusolver.so.12", "libcusparse.so.12", "libnccl.so.2", "libnvJitLink.so.13",
		},
		Note: "needs the driver and CUDA 13 with cuDNN 9",
	},
	{
		Name: "rocm", Package: "jax-rocm7-pjrt", Version: "0.12.0",
		Wheel:  "jax_rocm7_pjrt-0.12.0-py3-none-manylinux_2_27_x86_64.whl",
		SHA256: "4551d0714523355f2946ca1958c3f584e95661e467a641d36b726f718a1c7934", Size: 133415872,
		Member: "jax_plugins/xla_rocm7/xla_rocm_plugin.so",
		Note:   "needs ROCm 7 in /opt/rocm",
	},
}

// Names lists the plugins that can be installed.
func Names() []string {
	out := make([]string, len(pins))
	for i, p := range pins {
		out[i] = p.Name
	}
	return out
}

// PinOf returns the trusted build of a plugin.
func PinOf(name string) (Pin, error) {
	for _, p := range pins {
		if p.Name == name {
			return p, nil
		}
	}
	return Pin{}, fmt.Errorf("plugin %q: want one of %s; use another plugin by its path, as xla:/path/of/plugin.so", cmp.Or(name, "without a name"), strings.Join(Names(), ", "))
}

// File returns the file name of the installed plugin. Find recognizes it.
func (p Pin) File() string { return "pjrt_c_api_" + p.Name + "_plugin.so" }

// fits returns an error unless the build runs on this kind of machine.
func (p Pin) fits() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("plugin %s: %s %s is built for linux on amd64, this is %s on %s", p.Name, p.Package, p.Version, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}
