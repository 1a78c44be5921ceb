package rows

import (
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
)

// rowGroup is how many rows a writer holds.
const rowGroup = 4096

// WriteParquet writes rows, whose columns are the fields of T with the tag parquet,
// compressed by zstd. Errors: the first of list and of w.
func WriteParquet[T any](w io.Writer, list iter.Seq2[T, error]) error {
	out := parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))
	n := 0
	for row, err := range list {
		if err == nil {
			_, err = out.Write([]T{row})
		}
		if n++; err == nil && n%rowGroup == 0 {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}
