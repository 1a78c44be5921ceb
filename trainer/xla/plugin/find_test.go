package plugin_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/xla/plugin"
)

func TestList(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, path := range []string{
		filepath.Join(first, "pjrt_c_api_cuda_plugin.so"), filepath.Join(second, "pjrt_c_api_cuda_plugin.so"),
		filepath.Join(second, "pjrt-plugin-cpu_v0.114.0.so"), filepath.Join(second, "pjrt_plugin_rocm.so"),
		filepath.Join(second, "libc.so"), filepath.Join(second, "pjrt_c_api__plugin.so"),
	} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(plugin.PathEnv, first+":"+filepath.Join(first, "absent")+"::"+second)
	want := []plugin.Plugin{
		{Name: "cpu_v0.114.0", Path: filepath.Join(second, "pjrt-plugin-cpu_v0.114.0.so")},
		{Name: "cuda", Path: filepath.Join(first, "pjrt_c_api_cuda_plugin.so")},
		{Name: "rocm", Path: filepath.Join(second, "pjrt_plugin_rocm.so")},
	}
	if diff := cmp.Diff(plugin.List(), want); diff != "" {
		t.Errorf("plugins (-got +want):\n%s", diff)
	}
}
