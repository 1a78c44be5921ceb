package export

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/series"
)

// SeriesCSV are the series of all steps, one line a step, under their names.
func SeriesCSV(records []run.StepRecord) ([]byte, error) {
	var buf bytes.Buffer
	out := csv.NewWriter(&buf)
	keys := Keys(records)
	if err := out.Write(append([]string{"step", "stage", "started", "ended"}, keys...)); err != nil {
		return nil, err
	}
	for _, rec := range records {
		line := []string{strconv.Itoa(rec.Step), rec.StageName, rec.Started.UTC().Format("2006-01-02T15:04:05.000Z"), rec.Ended.UTC().Format("2006-01-02T15:04:05.000Z")}
		for _, key := range keys {
			cell := ""
			if v, ok := series.Known(rec.Metrics, key); ok {
				cell = strconv.FormatFloat(v, 'g', -1, 64)
			}
			line = append(line, cell)
		}
		if err := out.Write(line); err != nil {
			return nil, err
		}
	}
	out.Flush()
	return buf.Bytes(), out.Error()
}

// EventFile is the name by which TensorBoard knows an event file.
func EventFile(records []run.StepRecord, runID string) string {
	at := int64(0)
	if len(records) > 0 {
		at = records[0].Started.Unix()
	}
	return "events.out.tfevents." + strconv.FormatInt(at, 10) + "." + runID
}

// TensorBoard are the series of all steps as an event file of TensorBoard.
func TensorBoard(records []run.StepRecord) []byte {
	if len(records) == 0 {
		return nil
	}
	out := series.File(records[0].Started)
	for _, rec := range records {
		out = series.Append(out, rec.Step, rec.Ended, rec.Metrics.Known())
	}
	return out
}

// Keys returns the names of all series in some records, in order.
func Keys(records []run.StepRecord) []string {
	names := map[string]bool{}
	for _, rec := range records {
		for name := range rec.Metrics.Known() {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ReplaceFile writes a file by fill. One that is there stays until the new one is whole; what is no
// file, such as /dev/stdout, is written to at once.
func ReplaceFile(path string, fill func(io.Writer) error) error {
	if there, err := filepath.EvalSymlinks(path); err == nil {
		path = there // not the link
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return writeTo(path, os.O_WRONLY, fill)
	}
	part := path + ".part"
	if err = writeTo(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fill); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part) // the error says more; it may not be there
	}
	return err
}

func writeTo(path string, flags int, fill func(io.Writer) error) error {
	file, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return fault.New(fault.InvalidConfig, err)
	}
	w := bufio.NewWriter(file)
	err = fill(w)
	return cmp.Or(err, w.Flush(), file.Close())
}
