package device_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/trainer/device"
	"temper/trainer/xla/plugin"
)

func TestOpenGo(t *testing.T) {
	for _, name := range []string{"", "go", "go:ops_sequential"} {
		backend, err := device.Open(name)
		if err != nil {
			t.Fatalf("Open(%q): %v", name, err)
		}
		if got := backend.NumDevices(); got != 1 {
			t.Errorf("Open(%q): %d devices, want 1", name, got)
		}
		backend.Finalize()
		if err := device.Check(name); err != nil {
			t.Errorf("Check(%q): %v", name, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(plugin.PathEnv, dir)
	text := filepath.Join(dir, "pjrt_c_api_text_plugin.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := device.Open("xla:" + filepath.Join(dir, "absent.so"))
	xla := !errors.Is(err, device.ErrNotBuilt)
	unless := func(built bool, err error) error { // without the family every name of it gives one error
		if !built {
			return device.ErrNotBuilt
		}
		return err
	}
	for _, c := range []struct {
		name string
		want error
		text string
	}{
		{"gpu", device.ErrName, "want go, xla:cuda"},
		{"cuda:0", device.ErrName, `family "cuda"`},
		{"onnx:/lib.so", device.ErrName, `family "onnx"`},
		{"xla", device.ErrName, "needs a library"},
		{"xla:", device.ErrName, "needs a library"},
		{"xla:cuda", unless(xla, device.ErrNoPlugin), ""},
		{"xla:some/plugin.so", unless(xla, device.ErrName), ""},
		{"xla:" + filepath.Join(dir, "absent.so"), unless(xla, device.ErrNoPlugin), ""},
		{"xla:" + dir, unless(xla, device.ErrNoPlugin), ""},
		{"xla:text", unless(xla, nil), ""}, // found, but it does not load
	} {
		if err := device.Check(c.name); c.want != nil && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("Check(%q): %v, want %v", c.name, err, c.want)
		}
		backend, err := device.Open(c.name)
		switch {
		case err == nil || backend != nil:
			t.Errorf("Open(%q) = %v, %v, want an error and no backend", c.name, backend, err)
		case c.want != nil && !errors.Is(err, c.want):
			t.Errorf("Open(%q): %v, want %v", c.name, err, c.want)
		case !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n"):
			t.Errorf("Open(%q): %q, want one line with %q", c.name, err, c.text)
		}
	}
}
