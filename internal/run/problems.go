package run

import (
	"bytes"
	"context"
	"fmt"

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

// PutLines stores values as JSON lines.
func PutLines[T any](ctx context.Context, store blob.Store, key string, values []T) (blob.Ref, error) {
	var buf bytes.Buffer
	if err := dataset.Write(&buf, values); err != nil {
		return blob.Ref{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return blob.PutBytes(ctx, store, key, buf.Bytes(), blob.Always)
}
