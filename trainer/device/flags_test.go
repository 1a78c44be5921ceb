package device

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFlagsOfGPUs: the plugin of a GPU gets the flags that keep its bits, but for those that
// somebody has set; the plugin of a CPU and a file of flags get none.
func TestFlagsOfGPUs(t *testing.T) {
	const all = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
	file := filepath.Join(t.TempDir(), "flags")
	for name, c := range map[string]struct{ library, flags, want string }{
		"cuda":            {"/lib/pjrt_c_api_cuda_plugin.so", "", all},
		"as JAX calls":    {"/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "", all},
		"rocm":            {"/lib/pjrt_c_api_rocm_plugin.so", "", all},
		"named otherwise": {"/opt/plugin.so", "", all},
		"others stay":     {"/lib/pjrt_c_api_cuda_plugin.so", " --xla_dump_to=/tmp ", "--xla_dump_to=/tmp " + all},
		"one is set":      {"/lib/pjrt_c_api_cuda_plugin.so", "--xla_gpu_autotune_level=4", "--xla_gpu_autotune_level=4 --xla_gpu_deterministic_ops=true --xla_gpu_enable_triton_gemm=false"},
		"twice the same":  {"/lib/pjrt_c_api_cuda_plugin.so", all, all},
		"cpu":             {"/cuda/pjrt_c_api_cpu_plugin.so", "", ""},
		"a file":          {"/lib/pjrt_c_api_cuda_plugin.so", file, file},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XLA_FLAGS", c.flags)
			keepBits(c.library)
			if got := os.Getenv("XLA_FLAGS"); got != c.want {
				t.Errorf("XLA_FLAGS is %q, want %q", got, c.want)
			}
		})
	}
}
