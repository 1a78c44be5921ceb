package device_test

import (
	"slices"
	"strings"
	"testing"

	"temper/trainer/device"
)

func TestParseMesh(t *testing.T) {
	for text, want := range map[string]device.Mesh{
		"":               {},
		"data=4,model=2": {Data: 4, Model: 2, FSDP: true},
		"model=2,data=4": {Data: 4, Model: 2, FSDP: true},
		"model=8":        {Data: 1, Model: 8},
	} {
		if got, err := device.ParseMesh(text); err != nil || got != want {
			t.Errorf("%q: %+v, error %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"4x2", "data=0", "data=2,data=2", "rows=2", "data=", "data=4,"} {
		if _, err := device.ParseMesh(text); err == nil || !strings.Contains(err.Error(), "like data=4,model=2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with an example", text, err)
		}
	}
}

func TestMeshesNeedXLA(t *testing.T) {
	two := device.Mesh{Data: 2, Model: 1, FSDP: true}
	for _, backend := range []string{"", "go", "go:parallelism=4"} {
		if err := device.CheckMesh(backend, two); err == nil || !strings.Contains(err.Error(), "drives one device; want an XLA backend") {
			t.Errorf("%q: error %v", backend, err)
		}
		if err := device.CheckMesh(backend, device.Mesh{}); err != nil {
			t.Errorf("%q without a mesh: %v", backend, err)
		}
	}
	if err := device.CheckMesh("xla:cuda", two); err != nil {
		t.Error(err)
	}
}

func TestInputShardings(t *testing.T) {
	m := device.Mesh{Data: 2, Model: 4}
	s, err := device.RowSharding(m, []int{3, 6, 16})
	if err != nil || !slices.Equal(s.Axes, []string{"", "data", ""}) || !slices.Equal(s.Shard, []int{3, 3, 16}) {
		t.Errorf("packed tokens: %+v, error %v", s, err)
	}
	if _, err := device.RowSharding(m, []int{3, 16}); err == nil || !strings.Contains(err.Error(), "batch of 3 rows: not a multiple of the data axis 2") {
		t.Errorf("rows that do not divide: %v", err)
	}
	if s := device.Everywhere([]int{7}); !slices.Equal(s.Axes, []string{""}) || !slices.Equal(s.Shard, []int{7}) {
		t.Errorf("whole: %+v", s)
	}
}
