package hf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Digest is the sha256 of all that decides what a directory says: the weights, the
// configuration, the tokenizer and the template. It reads every byte of the weights.
func (m *Model) Digest(ctx context.Context) (string, error) {
	names := []string{ConfigFile, GenerationFile, TokenizerFile, TokenizerConfigFile, TemplateFile}
	for _, shard := range m.shards {
		names = append(names, filepath.Base(shard.Name()))
	}
	all := sha256.New()
	for _, name := range names {
		sum, err := sumOfFile(ctx, filepath.Join(m.path, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // not every directory has all of them
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s %x\n", name, sum)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func sumOfFile(ctx context.Context, path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the user names the directory
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	sum := sha256.New()
	for {
		n, err := io.CopyN(sum, f, 64<<20)
		switch {
		case errors.Is(err, io.EOF):
			return sum.Sum(nil), nil
		case err != nil:
			return nil, fmt.Errorf("%s: after %d bytes: %w", path, n, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
