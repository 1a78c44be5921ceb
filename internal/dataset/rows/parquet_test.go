package rows

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestRowsAtOnce: rows are decoded together up to the size of one that may be read, and all
// of them are read.
func TestRowsAtOnce(t *testing.T) {
	type row struct {
		Problem string `parquet:"problem"`
	}
	for name, c := range map[string]struct{ num, bytes, atLeast, atMost int }{
		"small": {200, 100, rowsPerRead, rowsPerRead}, "large": {100, 512 << 10, 2, MaxBytes / (512 << 10)}, "too long": {3, MaxBytes + 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in.parquet")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			w := parquet.NewGenericWriter[row](f, parquet.Compression(&parquet.Zstd))
			for i := range c.num {
				if _, err := w.Write([]row{{strings.Repeat(string(rune('a'+i%26)), c.bytes)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(w.Close(), f.Close()); err != nil {
				t.Fatal(err)
			}
			if f, err = os.Open(path); err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			p, err := openParquet(f)
			if err != nil {
				t.Fatal(err)
			}
			read, most := 0, 0
			for {
				row, err := p.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if long := c.bytes > MaxBytes; long != errors.Is(row.Err, ErrLong) || !long && row.Err != nil {
					t.Errorf("row %d: %v", row.Num, row.Err)
				}
				read, most = read+1, max(most, p.have)
			}
			if read != c.num || most < c.atLeast || most > c.atMost {
				t.Errorf("%d rows, at most %d at once; want %d, %d to %d", read, most, c.num, c.atLeast, c.atMost)
			}
		})
	}
}
