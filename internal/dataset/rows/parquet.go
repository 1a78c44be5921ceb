package rows

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// rowsPerRead is how many rows of a Parquet file are decoded at once, at most.
const rowsPerRead = 64

// parquetRows are the rows of a Parquet file, put together from its columns.
type parquetRows struct {
	file *os.File
	size int64
	meta *format.FileMetaData
	// plain is the file without compression, see openPlain.
	plain  *parquet.File
	held   pageMemory
	unpack unpacker
	pages  []*pageReader // of open
	fields []*node
	group  int // of open, the next one when open is nil
	open   parquet.Rows
	num    int64
	buf    [rowsPerRead]parquet.Row
	have   int
	at     int
	// cells are the values of the current row by column, those that are left.
	cells [][]parquet.Value
	out   []byte
}

func openParquet(f *os.File) (p *parquetRows, err error) {
	defer recoverCorrupt(&err)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
	if err != nil {
		return nil, fmt.Errorf("is no Parquet file that can be read: %w", err)
	}
	plain, err := openPlain(file.Metadata())
	if err != nil {
		return nil, fmt.Errorf("is no Parquet file that can be read: %w", err)
	}
	p = &parquetRows{file: f, size: info.Size(), meta: file.Metadata(), plain: plain, cells: make([][]parquet.Value, 0, 16)}
	for _, c := range plain.Root().Columns() {
		field, err := newNode(c)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name(), err)
		}
		p.fields = append(p.fields, field)
	}
	return p, nil
}

// recoverCorrupt turns a panic over a broken file into an error.
func recoverCorrupt(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet file is corrupt: %v", p)
	}
}

func (p *parquetRows) next() (row Row, err error) {
	defer recoverCorrupt(&err)
	if p.at == p.have {
		if err := p.read(); err != nil {
			return Row{}, err
		}
	}
	values := p.buf[p.at]
	p.at++
	p.num++
	if err := p.splitColumns(values); err != nil {
		return Row{}, fmt.Errorf("row %d: %w", p.num, err)
	}
	p.out = append(p.out[:0], '{')
	for i, f := range p.fields {
		if i > 0 {
			p.out = append(p.out, ',')
		}
		p.out = append(append(p.out, f.key...), ':')
		if p.out, err = f.append(p.out, p.cells); err != nil {
			return Row{Num: p.num, Err: fmt.Errorf("column %s: %w", f.key, err)}, nil
		}
		if len(p.out) > MaxBytes {
			return Row{Num: p.num, Err: ErrLong}, nil
		}
	}
	p.out = append(p.out, '}')
	return Row{Num: p.num, JSON: p.out}, nil
}

// read decodes the next rows, or returns io.EOF.
func (p *parquetRows) read() error {
	for {
		if p.open == nil {
			if err := p.openNext(); err != nil {
				return err
			}
		}
		n, err := p.readRows()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("row %d: %w", p.num+1, err)
		}
		if n > 0 {
			return nil
		}
		if err == nil {
			return fmt.Errorf("row %d: the row group ends too early", p.num+1)
		}
		if err := p.closeGroup(); err != nil {
			return err
		}
	}
}

// readRows decodes the next rows of the open group.
func (p *parquetRows) readRows() (int, error) {
	p.held.begin()
	n, err := p.open.ReadRows(p.buf[:p.rowsAtOnce()])
	p.have, p.at = n, 0
	for _, c := range p.pages {
		if c.err != nil {
			return 0, fmt.Errorf("column %s: %w", strings.Join(c.chunk.PathInSchema, "."), c.err)
		}
	}
	return n, err
}

// openNext begins to read the next row group that has rows, or returns io.EOF.
func (p *parquetRows) openNext() error {
	for groups := p.plain.RowGroups(); p.group < len(groups); p.group++ {
		if groups[p.group].NumRows() > 0 {
			return p.openGroup(groups[p.group])
		}
	}
	return io.EOF
}

// openGroup begins to read a row group.
func (p *parquetRows) openGroup(group parquet.RowGroup) error {
	chunks := p.meta.RowGroups[p.group].Columns
	columns := columnGroup{RowGroup: group}
	p.held = pageMemory{pages: make([]int64, len(chunks)), dicts: make([]int64, len(chunks))}
	p.pages = p.pages[:0]
	for i, c := range group.ColumnChunks() {
		file, ok := c.(*parquet.FileColumnChunk)
		if !ok {
			return fmt.Errorf("column %d is a %T", i, c)
		}
		leaf, ok := file.Node().(*parquet.Column)
		if !ok {
			return fmt.Errorf("column %d is of a %T", i, file.Node())
		}
		pages := &pageReader{
			file: p.file, size: p.size, chunk: &chunks[i].MetaData, column: i, weigh: newWeigher(leaf), held: &p.held, unpack: &p.unpack,
		}
		p.pages = append(p.pages, pages)
		columns.columns = append(columns.columns, column{FileColumnChunk: file, pages: pages})
	}
	p.open = columns.Rows()
	return nil
}

// rowsAtOnce is how many rows of the open group are decoded at once: as many as have the size
// of the largest row that is taken, by their mean size. They are in memory before a row that is
// too long is refused, and a small file may have large ones.
func (p *parquetRows) rowsAtOnce() int {
	group := &p.meta.RowGroups[p.group]
	size := int64(0)
	for _, c := range group.Columns {
		size += max(0, c.MetaData.TotalUncompressedSize)
	}
	mean := max(1, size/max(1, group.NumRows))
	return int(min(max(1, MaxBytes/mean), rowsPerRead))
}

func (p *parquetRows) closeGroup() error {
	err := p.open.Close()
	p.open, p.group = nil, p.group+1
	return err
}

// splitColumns splits the values of a row by column.
func (p *parquetRows) splitColumns(values parquet.Row) error {
	p.cells = p.cells[:0]
	for start := 0; start < len(values); {
		column, end := values[start].Column(), start+1
		for end < len(values) && values[end].Column() == column {
			end++
		}
		if column != len(p.cells) {
			return fmt.Errorf("column %d has no value", len(p.cells))
		}
		p.cells = append(p.cells, values[start:end])
		start = end
	}
	return nil
}

// skip passes whole row groups without reading them. The rows of the last one are read like
// others: the library would hold no bound on the way.
func (p *parquetRows) skip(n int64) (err error) {
	defer recoverCorrupt(&err)
	if p.open != nil {
		return errors.New("skip: rows are read already")
	}
	p.num += n
	groups := p.plain.RowGroups()
	for ; p.group < len(groups) && n >= groups[p.group].NumRows(); p.group++ {
		n -= groups[p.group].NumRows()
	}
	for n > 0 {
		if err := p.read(); errors.Is(err, io.EOF) {
			return fmt.Errorf("skip: the file has %d rows less", n)
		} else if err != nil {
			return err
		}
		p.at = int(min(n, int64(p.have)))
		n -= int64(p.at)
	}
	return nil
}

// Close closes the row group that is being read.
func (p *parquetRows) Close() error {
	p.unpack.close()
	if p.open == nil {
		return nil
	}
	return p.open.Close()
}
