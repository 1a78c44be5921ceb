package board_test

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/tools/bench/board"
)

func report() board.Report {
	return board.Report{
		CPU: "a processor", Cores: 2, Load: "1 1 1", Python: "CPython 3.13.0", Concurrency: 4, Probes: []string{"fly", "swim"},
		Ways: []board.Way{
			{Name: "temper", Layers: "all", Held: []string{"fly", "swim"}, Idle: 1 << 20, Unit: "session"},
			{Name: "other", Layers: "none", Held: []string{"swim"}, Idle: 3 << 20, Unit: "worker"},
			{Name: "absent", Missing: "install it"},
		},
		Rows: []board.Row{
			{Program: "print", Way: "temper", Calls: 10, CPU: 2 * time.Millisecond, PerCore: 500, PerSecond: 700, P50: time.Millisecond, P99: 2 * time.Millisecond},
			{Program: "print", Way: "other", Calls: 10, Failed: 1, Failure: "output: x", CPU: 20 * time.Millisecond, PerCore: 50, PerSecond: 70},
		},
	}
}

func TestTablesNameWhatIsMissingAndWhatFailed(t *testing.T) {
	for name, text := range map[string]string{"text": report().Text(), "Markdown": report().Markdown()} {
		for _, want := range []string{"2 cores of a processor", "20.0 ms (10.0x)", "1 of 10", "not measured: install it", "first failure output: x", "3.0 MiB, worker", "fly"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
	}
	for _, row := range strings.Split(strings.TrimSpace(report().Markdown()), "\n") {
		if strings.HasPrefix(row, "| print") && strings.Count(row, "|") != 9 {
			t.Errorf("row %q has %d bars", row, strings.Count(row, "|"))
		}
	}
}

func TestPictureHasABarForEachWay(t *testing.T) {
	data, err := report().PNG()
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for y := range picture.Bounds().Dy() {
		run := 0
		for x := range picture.Bounds().Dx() {
			if r, g, b, _ := picture.At(x, y).RGBA(); r>>8 == 0x1b && g>>8 == 0x9e && b>>8 == 0x77 {
				run++
			}
		}
		if run > 900 {
			long++
		}
	}
	if long < 60 { // two panels in which the first bar is the longest
		t.Errorf("%d lines of pixels hold a long bar of the first way", long)
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	for _, cfg := range []board.Config{{Ways: []string{"magic"}}, {Programs: []string{"magic"}}} {
		if _, err := board.Measure(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "magic") {
			t.Errorf("%+v: got error %v", cfg, err)
		}
	}
}

func TestWaysThatAreNotInstalledAreLeftOut(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho CPython 3.13.0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	got, err := board.Measure(t.Context(), board.Config{Places: board.Places{Python: python}, Ways: []string{"go-judge", "code-judge", "bubblewrap + python"}, Programs: []string{"print"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range got.Ways {
		if w.Missing == "" {
			t.Errorf("%s is not installed, and the board does not say so", w.Name)
		}
	}
}
