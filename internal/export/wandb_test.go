package export_test

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run/runtest"
)

// TestWandBLog: each piece has its sum, records that are longer than a block come back
// whole, and every step has its series.
func TestWandBLog(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 4, true)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	folder, steps, err := export.WandB(t.Context(), r, dir, "temper")
	if err != nil || steps != 4 || filepath.Dir(folder) != dir {
		t.Fatalf("%s, %d steps (%v)", folder, steps, err)
	}
	if info, err := os.Stat(filepath.Join(folder, "files")); err != nil || !info.IsDir() {
		t.Errorf("wandb sync has no folder for the summary: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "run-demo.wandb"))
	if err != nil || len(data) < 7 || string(data[:7]) != ":W&B\xe1\xbe\x00" {
		t.Fatalf("begins with %q (%v)", data[:min(7, len(data))], err)
	}
	kinds := map[protowire.Number]int{}
	rewards := 0
	for i, one := range piecesOf(t, data) {
		fields := fieldsOf(t, one)
		if len(fields) != 2 || fields[0].num != 1 || fields[0].number != uint64(i+1) {
			t.Fatalf("record %d: %d fields, the first is %+v", i, len(fields), fields[0])
		}
		kinds[fields[1].num]++
		if fields[1].num == 17 {
			for _, f := range fieldsOf(t, fields[1].content) {
				if f.num == 8 && string(f.content) != "demo" {
					t.Errorf("the run is called %q", f.content)
				}
			}
		}
		if fields[1].num != 2 {
			continue
		}
		for _, item := range fieldsOf(t, fields[1].content) {
			if item.num != 1 {
				continue
			}
			parts := fieldsOf(t, item.content)
			var x float64
			if err := json.Unmarshal(parts[1].content, &x); err != nil || parts[1].num != 16 {
				t.Errorf("%s is %q", parts[0].content, parts[1].content)
			}
			if string(parts[0].content) == "critic/rewards/mean" {
				rewards++
			}
		}
	}
	if kinds[2] != 4 || kinds[3] != 1 || kinds[17] != 1 || kinds[18] != 1 || kinds[21] != 1 || rewards != 4 {
		t.Errorf("kinds %v, %d rewards", kinds, rewards)
	}
}

type wireField struct {
	num     protowire.Number
	number  uint64
	content []byte
}

func fieldsOf(t *testing.T, b []byte) (out []wireField) {
	t.Helper()
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		f, m := wireField{num: num}, 0
		if kind == protowire.BytesType {
			f.content, m = protowire.ConsumeBytes(b[n:])
		} else {
			f.number, m = protowire.ConsumeVarint(b[n:])
		}
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		out, b = append(out, f), b[n+m:]
	}
	return out
}

// piecesOf joins the pieces of a log to its records.
func piecesOf(t *testing.T, data []byte) (out [][]byte) {
	t.Helper()
	var open []byte
	for at := 7; at < len(data); {
		if left := 32<<10 - at%(32<<10); left < 7 {
			at += left
			continue
		}
		n := int(binary.LittleEndian.Uint16(data[at+4:]))
		kind, body := data[at+6], data[at+7:][:n]
		if crc32.ChecksumIEEE(append([]byte{kind}, body...)) != binary.LittleEndian.Uint32(data[at:]) {
			t.Fatalf("wrong sum at byte %d", at)
		}
		open = append(open, body...)
		if kind == 1 || kind == 4 {
			out, open = append(out, open), nil
		}
		at += 7 + n
	}
	return out
}
