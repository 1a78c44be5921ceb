package runclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParsePlacement(t *testing.T) {
	const good = `{"trainer": {"count": 1, "devices": {"amd/gpu": 8}}, "engine": {"count": 2, "most": 7, "devices": {"amd/gpu": 8}}}`
	file := filepath.Join(t.TempDir(), "placement.json")
	if err := os.WriteFile(file, []byte(good+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{good, file} {
		if spec, err := ParsePlacement(text); err != nil || spec.Engine.Most != 7 || spec.Trainer.Devices["amd/gpu"] != 8 {
			t.Errorf("%s: %+v, %v", text, spec, err)
		}
	}
	if spec, err := ParsePlacement(""); spec != nil || err != nil {
		t.Errorf("none: %+v, %v", spec, err)
	}
	for text, want := range map[string]string{
		`{}`:                            "placement.trainer: is missing",
		`{"trainr": {"count": 1}}`:      "trainr: unknown key; did you mean trainer?",
		`{"trainer": {"gpus": 8}}`:      "trainer.gpus: unknown key",
		`{"trainer": {"count": "two"}}`: "trainer.count: want a whole number",
		`{"trainer": {"count": 2}, "engine": {"count": 0, "devices": {"gpu": 0}}}`: "placement.engine.devices.gpu: is 0, want 1 to 1024",
		"nowhere.json": "no such file",
	} {
		if _, err := ParsePlacement(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
