package devicebench_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"temper/tools/bench/devicebench"
	"temper/tools/bench/trainerbench"
	"temper/trainer/device"
	"temper/trainer/xla/selfcheck"
)

func TestChoose(t *testing.T) {
	file := &fstest.MapFile{}
	for _, c := range []struct {
		named string
		root  fstest.MapFS
		want  string
	}{
		{"", fstest.MapFS{"dev/nvidia0": file, "dev/kfd": file}, "xla:cuda"},
		{"", fstest.MapFS{"dev/kfd": file}, "xla:rocm"},
		{"rocm", fstest.MapFS{"dev/nvidia0": file}, "xla:rocm"},
		{"xla:/opt/plugin.so", nil, "xla:/opt/plugin.so"},
	} {
		if got, err := devicebench.Choose(c.named, c.root); err != nil || got != c.want {
			t.Errorf("%q: %s, error %v; want %s", c.named, got, err, c.want)
		}
	}
	if _, err := devicebench.Choose("", fstest.MapFS{}); !errors.Is(err, devicebench.ErrNoGPU) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a GPU: %v", err)
	}
}

// TestCasesCanBeMeasured: every mesh divides the network of its case, whatever the number
// of devices.
func TestCasesCanBeMeasured(t *testing.T) {
	for _, devices := range []int{1, 2, 4, 8, 16} {
		for _, size := range []devicebench.Size{devicebench.Small, devicebench.Large} {
			if size == devicebench.Small && devices > 4 {
				continue // the CPU plugin drives four
			}
			works := map[devicebench.Work]int{}
			for _, c := range devicebench.Cases("xla:cuda", devices, size) {
				works[c.Work]++
				mesh, err := device.ParseMesh(c.Mesh)
				if err != nil || mesh.NumDevices() != 0 && mesh.NumDevices() != devices {
					t.Errorf("%v: %v, error %v, want %d devices", c, mesh, err, devices)
				}
				if c.Model == "" || !mesh.Several() {
					continue
				}
				model, err := trainerbench.Model(c.Model)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := device.Shardings(model, mesh); err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
			if works[devicebench.Check] == 0 || works[devicebench.Train] < 4 || works[devicebench.Decode] == 0 {
				t.Errorf("%d devices, %s: %v", devices, size, works)
			}
		}
	}
	if got := devicebench.Meshes(4); !slices.Equal(got, []string{"data=4,model=1", "data=2,model=2", "data=1,model=4"}) {
		t.Errorf("meshes %v", got)
	}
}

func TestReadTests(t *testing.T) {
	const text = `# temper/trainer/passes
{"Action":"start","Package":"temper/trainer"}
{"Action":"pass","Package":"temper/trainer","Test":"TestXLA","Elapsed":1.5}
{"Action":"fail","Package":"temper/trainer","Test":"TestXLAOther","Elapsed":2}
{"Action":"fail","Package":"temper/trainer","Elapsed":4}
{"Action":"fail","Package":"temper/trainer/passes","Elapsed":0}
{"Action":"skip","Package":"temper/trainer/device","Elapsed":0}
`
	got, err := devicebench.ReadTests(strings.NewReader(text))
	want := []devicebench.Test{
		{Package: "trainer", Name: "TestXLA", Outcome: "pass", Seconds: 1.5}, {Package: "trainer", Name: "TestXLAOther", Outcome: "fail", Seconds: 2},
		{Package: "trainer/passes", Outcome: "fail"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v; want %v", got, err, want)
	}
	if _, err := devicebench.ReadTests(strings.NewReader("{\"Action\"")); err == nil {
		t.Error("half a line was read")
	}
}

// TestReportIsKept: what failed stands first, and both files hold all of it.
func TestReportIsKept(t *testing.T) {
	r := devicebench.Report{
		Backend: "xla:cuda", Devices: 2, Kind: "H100", Peak: 1e15,
		Tests: []devicebench.Test{{Package: "trainer", Name: "TestXLA", Outcome: "fail"}},
		Results: []devicebench.Result{
			{Case: devicebench.Case{Work: devicebench.Check}, Check: &selfcheck.Report{Loss: 1, LossGo: 1.25}},
			{Case: devicebench.Case{Work: devicebench.Train, Model: "0.6b", Rows: 8, Tokens: 1024, Compute: "bfloat16"}, TokensPerSecond: 12345, MFU: 0.31, Compiled: 2e9, Planned: 21e8,
				Torch: []devicebench.TorchStep{{Mode: "eager", TokensPerSecond: 11111}}},
			{Case: devicebench.Case{Work: devicebench.Decode, Model: "0.6b", Slots: 64}, Error: "out of memory"},
		},
	}
	if got := r.Failures(); len(got) != 2 {
		t.Errorf("failures %v, want 2", got)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED: test trainer TestXLA", "FAILED: decode 0.6b, 64 at once: out of memory", "12345", "31.0 %", "2.100, +5.0 %", "11111", "| 1 | 0.25 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back devicebench.Report
	if err := json.Unmarshal(data, &back); err != nil || len(back.Results) != 3 || back.Results[1].TokensPerSecond != 12345 {
		t.Errorf("read back: %+v, error %v", back, err)
	}
}

func TestUnknownWork(t *testing.T) {
	if _, err := devicebench.Measure(t.Context(), devicebench.Case{Work: "sing"}); err == nil || !strings.Contains(err.Error(), `"sing"`) {
		t.Errorf("error %v", err)
	}
}
