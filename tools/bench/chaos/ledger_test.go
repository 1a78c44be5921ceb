package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/run/runtest"
)

func openLedger(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(t *testing.T, l *Ledger, lines ...Line) {
	t.Helper()
	for _, line := range lines {
		if err := l.Append(line); err != nil {
			t.Fatal(err)
		}
	}
}

func trialLine(id string, run int, t Trial) Line {
	return Line{Kind: LineTrial, ID: id, Run: run, Setting: Setting{Seed: 1, Build: "b"}, Trial: &t}
}

// TestLedgerSurvivesADeathAtAnyByte: however much of the last line was written, the
// lines before it are there, and the trial is made again and counted once.
func TestLedgerSurvivesADeathAtAnyByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, path)
	record(t, l, trialLine("1", 1, Trial{Outcome: Outcome{Blows: []Blow{{Victim: "worker"}}}}))
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	record(t, l, Line{Kind: LineBegin, ID: "2", Run: 2, Setting: Setting{Seed: 1, Build: "b"}}, trialLine("2", 2, Trial{}))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	setting := Setting{Seed: 1, Build: "b"}
	for n := len(first); n < len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if lines, err := ReadLedger(path); err != nil || len(lines) > 2 {
			t.Fatalf("%d bytes: a reader sees %d lines, %v", n, len(lines), err)
		}
		l := openLedger(t, path)
		if !l.Done(setting, 1) || l.Done(setting, 2) || l.Done(Setting{Seed: 1, Build: "c"}, 1) {
			t.Fatalf("%d bytes: run 1 done %v, run 2 done %v", n, l.Done(setting, 1), l.Done(setting, 2))
		}
		record(t, l, trialLine("3", 2, Trial{Outcome: Outcome{Blows: []Blow{{}, {}}}}))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		lines, err := ReadLedger(path)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		// The file twice is a copy from another folder.
		if r := SumUp(append(lines, lines...)); r.Runs != 2 || r.Kills != 3 || r.Interrupted > 1 {
			t.Fatalf("%d bytes: %d runs, %d kills, %d interrupted", n, r.Runs, r.Kills, r.Interrupted)
		}
	}
}

func TestLedgerHasOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, path)
	if _, err := OpenLedger(path); err == nil || !strings.Contains(err.Error(), path+" is in use") {
		t.Errorf("a second writer: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openLedger(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedLedgerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte("{\"kind\":\"calm\"}\nrubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"to write": func() error { _, err := OpenLedger(path); return err },
		"to read":  func() error { _, err := ReadLedger(path); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), path+": line 2 is damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSumUp adds two machines up, and shows what is wrong with either.
func TestSumUp(t *testing.T) {
	blow := func(victim string, life Life, point string, progress Seconds) Blow {
		return Blow{Victim: victim, Life: life, Point: point, Progress: progress, Stall: 2 * progress}
	}
	good := Trial{Outcome: Outcome{Wall: 4, Missed: 1, Blows: []Blow{blow("worker", Serving, "", 1), blow("worker", Starting, "", 3), blow("trainer", "", "p", 2)}}}
	bad := Trial{Name: "x", Elastic: true, Outcome: Outcome{Wall: 2, Moves: []Moved{{}, {}}, Blows: []Blow{blow("rollout", Leaving, "", 9)}}, Differences: []runtest.Difference{{Name: "o", Kind: "changed", Bits: 7}}}
	calm := func(id, result string) Line {
		return Line{Kind: LineCalm, ID: id, Result: result, Objects: 5, Wall: 3, Setting: Setting{Build: "b"}}
	}
	lines := []Line{calm("a", "1"), calm("b", "1"), trialLine("c", 1, good), trialLine("d", 2, bad), {Kind: LineBegin, ID: "e"}}
	r := SumUp(lines)
	if r.Good() || r.Runs != 2 || r.Elastic != 1 || r.Kills != 4 || r.Moves != 2 || r.Missed != 1 || r.Differs != 1 || r.Bits != 7 || r.Undisturbed != 2 || r.CalmDiffers != 0 || r.Interrupted != 1 {
		t.Errorf("%+v", r)
	}
	rows := map[string]Row{}
	for _, row := range r.By {
		rows[row.Victim+" "+row.when()] = row
	}
	for name, want := range map[string]int{
		"worker at any time": 2, "worker serving": 1, "worker starting": 1, "rollout leaving": 1, "trainer p": 1, "all at a fail point": 1, "all at any time": 4,
	} {
		if rows[name].Kills != want {
			t.Errorf("%s: %d kills, want %d", name, rows[name].Kills, want)
		}
	}
	if got := rows["all at any time"].Progress; got != (Spread{Median: 3, P95: 9, Worst: 9}) {
		t.Errorf("progress %+v", got)
	}
	if d := cmp.Diff(r.Notes, []string{"x: o is changed, 7 bits"}); d != "" {
		t.Errorf("notes (got -, want +)\n%s", d)
	}
	if r := SumUp([]Line{calm("a", "1"), calm("b", "2")}); r.Good() || r.CalmDiffers != 1 {
		t.Errorf("undisturbed runs that differ: %+v", r)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "differing 1 (7 bits)") {
		t.Errorf("%v in\n%s", err, text.String())
	}
}

// TestReportTimesAreOrdered: the median is no larger than the 95th of a hundred, and
// that no larger than the worst.
func TestReportTimesAreOrdered(t *testing.T) {
	var xs []Seconds
	for i := range 100 {
		xs = append(xs, Seconds(i))
	}
	if got := spread(xs); got != (Spread{50, 95, 99}) {
		t.Errorf("%+v", got)
	}
}
