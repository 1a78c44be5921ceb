package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"temper/internal/blob"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/rl"
)

// ReadProblems reads a stored set of problems. Errors: Corrupt.
func ReadProblems(ctx context.Context, store blob.Store, key string) ([]rl.Problem, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	problems, err := dataset.ReadProblems(bytes.NewReader(data), store.Locate(key))
	return problems, fault.New(fault.Corrupt, err)
}

// ProblemsByID reads the problems of a set in the order of ids. Errors: NotFound
// for one that is not in the set.
func ProblemsByID(ctx context.Context, store blob.Store, key string, ids []string) ([]rl.Problem, error) {
	all, err := ReadProblems(ctx, store, key)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]rl.Problem, len(all))
	for _, p := range all {
		byID[p.ID] = p
	}
	out := make([]rl.Problem, 0, len(ids))
	for _, id := range ids {
		p, ok := byID[id]
		if !ok {
			return nil, fault.Newf(fault.NotFound, "%s: no problem %q", store.Locate(key), id)
		}
		out = append(out, p)
	}
	return out, nil
}

// FindProblem finds one problem in the content of a stored set. It decodes that one line,
// where the set is written as PutLines does: a set may have tens of thousands.
func FindProblem(data []byte, id string) (p rl.Problem, ok bool, err error) {
	name, err := json.Marshal(id)
	if err != nil {
		return p, false, err
	}
	for at := 0; ; {
		found := bytes.Index(data[at:], append([]byte(`"id":`), name...))
		if found < 0 {
			break
		}
		from := bytes.LastIndexByte(data[:at+found], '\n') + 1
		line, _, _ := bytes.Cut(data[from:], []byte{'\n'})
		if json.Unmarshal(line, &p) == nil && p.ID == id {
			return p, true, nil
		}
		at += found + 1
	}
	all, err := dataset.ReadProblems(bytes.NewReader(data), "problems") // in another form, or not there
	for _, p := range all {
		if p.ID == id {
			return p, true, nil
		}
	}
	return rl.Problem{}, false, fault.New(fault.Corrupt, err)
}

// PutLines stores values as JSON lines.
func PutLines[T any](ctx context.Context, store blob.Store, key string, values []T) (blob.Ref, error) {
	var buf bytes.Buffer
	if err := dataset.Write(&buf, values); err != nil {
		return blob.Ref{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return blob.PutBytes(ctx, store, key, buf.Bytes(), blob.Always)
}

// PassRate is a line of a file of pass rates.
type PassRate struct {
	ID   string   `json:"id"`
	Rate *float64 `json:"pass_rate"`
}

// ReadPassRates reads stored pass rates, by problem. Errors: Corrupt.
func ReadPassRates(ctx context.Context, store blob.Store, key string) (map[string]float64, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	out, err := DecodePassRates(bytes.NewReader(data), store.Locate(key))
	return out, fault.New(fault.Corrupt, err)
}

// maxRateLine bounds a line of a file of pass rates.
const maxRateLine = 1 << 20

// DecodePassRates reads JSON lines of PassRate. An error names the line.
func DecodePassRates(r io.Reader, name string) (map[string]float64, error) {
	out := map[string]float64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRateLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line PassRate
		err := json.Unmarshal(lines.Bytes(), &line)
		_, twice := out[line.ID]
		switch {
		case err != nil:
		case line.ID == "" || line.Rate == nil:
			err = errors.New(`want {"id": ID, "pass_rate": 0 to 1}`)
		case *line.Rate < 0 || *line.Rate > 1:
			err = fmt.Errorf("pass_rate is %g, want 0 to 1", *line.Rate)
		case twice:
			err = fmt.Errorf("problem %q has two pass rates", line.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		out[line.ID] = *line.Rate
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}
