// Package artifact owns the only key layout of a run in the store and the
// typed access to what lies there: configuration, data, trajectories, batches,
// checkpoints, policies, numbers. It knows no algorithm.
//
// Invariant: everything of a run lies under one folder, except its entry in the
// catalog, which can be made again from the folder. No other package makes keys.
package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"temper/internal/blob"
)

// Root is the folder of all runs, CatalogRoot that of their entries in the catalog.
const (
	Root        = "runs"
	CatalogRoot = "catalog"
)

var runIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckRunID reports what is wrong with a run id, if anything.
func CheckRunID(id string) error {
	if !runIDForm.MatchString(id) {
		return fmt.Errorf("run id %q: want 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit", id)
	}
	return nil
}

// RunIDs lists the runs in a store, sorted: those that have a folder and those
// that have an entry in the catalog.
func RunIDs(ctx context.Context, s blob.Store) (ids, cataloged []string, err error) {
	var entries []blob.Info
	lists := []func(context.Context) error{
		func(ctx context.Context) (err error) { _, ids, err = s.ListFolder(ctx, Root); return err },
		func(ctx context.Context) (err error) { entries, _, err = s.ListFolder(ctx, CatalogRoot); return err },
	}
	if err := Each(ctx, len(lists), func(ctx context.Context, i int) error { return lists[i](ctx) }); err != nil {
		return nil, nil, fmt.Errorf("list runs: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(path.Base(e.Key), ".json"); ok && CheckRunID(id) == nil {
			cataloged = append(cataloged, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return CheckRunID(id) != nil })
	return ids, cataloged, nil
}

// PutOnce stores v as JSON under key unless something is there already, and
// returns what is there afterwards. It makes a step's result stick: the first
// attempt that finishes wins, and later ones get its answer.
// Errors: blob.ErrCorrupt when what is there is no JSON of the type.
func PutOnce[T any](ctx context.Context, s blob.Store, key string, v T) (T, error) {
	_, err := blob.PutJSON(ctx, s, key, v, blob.IfAbsent)
	if err == nil || !errors.Is(err, blob.ErrExists) {
		return v, err
	}
	var stored T
	return stored, readJSON(ctx, s, key, &stored)
}

// RefOf is the Ref of v under a key as PutOnce stores it.
func RefOf(key string, v any) (blob.Ref, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return blob.Ref{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return blob.RefOf(key, append(data, '\n')), nil
}

// Lookup reads the JSON under key; ok is false when nothing is there.
// Errors: blob.ErrCorrupt, as PutOnce returns it.
func Lookup[T any](ctx context.Context, s blob.Store, key string) (v T, ok bool, err error) {
	err = readJSON(ctx, s, key, &v)
	if errors.Is(err, blob.ErrNotExist) {
		return v, false, nil
	}
	return v, err == nil, err
}

// readJSON reports bytes that will never decode as blob.ErrCorrupt, unlike a store
// that fails.
func readJSON(ctx context.Context, s blob.Store, key string, v any) error {
	data, err := blob.ReadKey(ctx, s, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w: %w", s.Locate(key), err, blob.ErrCorrupt)
	}
	return nil
}
