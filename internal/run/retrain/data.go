package retrain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/rl"
)

// problemFile is a file of problems on disk or in the store.
type problemFile struct {
	name string // what errors call it
	read func() ([]byte, error)
}

const problemSuffix = ".jsonl"

// findProblems lists the files that the patterns of a schedule match, in the
// order of the patterns and then by name, each once. Errors: InvalidConfig for a
// pattern that can match nothing ever.
func findProblems(ctx context.Context, store blob.Store, patterns []string) ([]problemFile, error) {
	var out []problemFile
	var bad []error
	seen := map[string]bool{}
	for _, pattern := range patterns {
		files, err := matchProblems(ctx, store, pattern)
		bad = append(bad, err)
		for _, f := range files {
			if !seen[f.name] {
				out, seen[f.name] = append(out, f), true
			}
		}
	}
	return out, errors.Join(bad...)
}

func matchProblems(ctx context.Context, store blob.Store, pattern string) ([]problemFile, error) {
	if prefix, stored := config.StoreKey(pattern); stored {
		return listProblems(ctx, store, prefix)
	}
	if !filepath.IsAbs(pattern) {
		return nil, fault.Newf(fault.InvalidConfig, "data: %q is relative: want an absolute path, or store:PREFIX", pattern)
	}
	if info, err := os.Stat(pattern); err == nil && info.IsDir() {
		pattern = filepath.Join(pattern, "*"+problemSuffix)
	}
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fault.Newf(fault.InvalidConfig, "data: %q: %w", pattern, err)
	}
	var out []problemFile
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			continue
		}
		out = append(out, problemFile{name: name, read: func() ([]byte, error) { return os.ReadFile(name) }}) //nolint:gosec // the owner of the schedule names the file
	}
	return out, nil
}

func listProblems(ctx context.Context, store blob.Store, prefix string) ([]problemFile, error) {
	infos, err := store.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("data: list %s: %w", store.Locate(prefix), err)
	}
	var out []problemFile
	for _, info := range infos {
		if strings.HasSuffix(info.Key, problemSuffix) {
			out = append(out, problemFile{name: store.Locate(info.Key), read: func() ([]byte, error) { return blob.ReadKey(ctx, store, info.Key) }})
		}
	}
	return out, nil
}

// readProblemFiles reads and checks problems of several files. A problem that is there
// twice counts once; two different ones of one id are an error. An empty file
// counts for nothing. Errors: Dataset, with all bad lines of all files.
func readProblemFiles(files []problemFile) ([]rl.Problem, error) {
	var out []rl.Problem
	var bad []error
	from := map[string]int{} // place in out by id
	origin := map[string]string{}
	for _, f := range files {
		data, err := f.read()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNotExist) {
			continue // taken away since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s: %w", f.name, err)
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		problems, err := dataset.ReadProblems(bytes.NewReader(data), f.name)
		bad = append(bad, err)
		for _, p := range problems {
			at, twice := from[p.ID]
			if twice && out[at] != p {
				bad = append(bad, fmt.Errorf("%s: problem %q differs from the one in %s: give it another id", f.name, p.ID, origin[p.ID]))
			}
			if !twice {
				from[p.ID], origin[p.ID] = len(out), f.name
				out = append(out, p)
			}
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fault.Newf(fault.Dataset, "data: %w", err)
	}
	return slices.Clip(out), nil
}
