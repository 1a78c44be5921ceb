package object

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"temper/internal/blob"
)

// Config defines where keys begin and how large blobs move.
type Config struct {
	// Place is the store for people, such as s3://bucket/prefix. It holds no secret.
	Place string
	// Prefix comes before every key, without slashes at its ends.
	Prefix string
	// PartSize is the length of the parts of large blobs in bytes, 0 = 16 MiB. A
	// blob has 10000 parts at most.
	PartSize int64
	// Concurrency is how many parts of one blob are on their way, 0 = 4. A Put
	// holds at most Concurrency+1 parts in memory.
	Concurrency int
	// Stall is how long a transfer may make no progress, 0 = 60 s. The transport
	// keeps to it; here it is for messages.
	Stall time.Duration
}

const (
	defaultPartSize    = 16 << 20
	defaultConcurrency = 4
	// DefaultStall is how long a transfer may make no progress.
	DefaultStall = time.Minute
	// staleUpload is the age at which an unfinished upload is taken for the
	// remains of a process that died.
	staleUpload = 24 * time.Hour
	// afterwards bounds what is done when the caller's context may have ended.
	afterwards = 15 * time.Second
)

func (c Config) stall() time.Duration {
	if c.Stall > 0 {
		return c.Stall
	}
	return DefaultStall
}

// Store implements blob.Store on an API.
type Store struct {
	cfg   Config
	api   API
	parts sync.Pool // of *bytes.Buffer, each of one part
}

var (
	_ blob.Store          = (*Store)(nil)
	_ blob.ParallelReader = (*Store)(nil)
	_ blob.Sweeper        = (*Store)(nil)
	_ blob.HashedPutter   = (*Store)(nil)
)

// New returns the store.
func New(cfg Config, api API) *Store {
	if cfg.PartSize == 0 {
		cfg.PartSize = defaultPartSize
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = defaultConcurrency
	}
	return &Store{cfg: cfg, api: api}
}

// Full is the key of the bucket for a key of the store.
func (s *Store) Full(key string) string { return path.Join(s.cfg.Prefix, key) }

// Locate returns the URL of a key.
func (s *Store) Locate(key string) string { return s.cfg.Place + "/" + key }

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return blob.Info{}, err
	}
	o, err := s.api.Head(ctx, s.Full(key))
	if err != nil {
		return blob.Info{}, s.Explain(ctx, "stat", key, err)
	}
	return blob.Info{Key: key, Size: o.Size, ModTime: o.ModTime}, nil
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	within := s.within()
	var out []blob.Info
	for token := ""; ; {
		page, next, err := s.api.List(ctx, within+prefix, token)
		if err != nil {
			return nil, s.Explain(ctx, "list", prefix, err)
		}
		out = appendInfos(out, page, within)
		if next == "" {
			break
		}
		token = next
	}
	sortInfos(out)
	return out, nil
}

// ListFolder implements blob.Store.
func (s *Store) ListFolder(ctx context.Context, folder string) (blobs []blob.Info, folders []string, err error) {
	if err := errors.Join(ctx.Err(), blob.CheckFolder(folder)); err != nil {
		return nil, nil, err
	}
	within, prefix := s.within(), ""
	if folder != "" {
		prefix = folder + "/"
	}
	for token := ""; ; {
		page, below, next, err := s.api.ListFolder(ctx, within+prefix, token)
		if err != nil {
			return nil, nil, s.Explain(ctx, "list folder", folder, err)
		}
		blobs = appendInfos(blobs, page, within)
		for _, name := range below {
			folders = append(folders, path.Base(name))
		}
		if next == "" {
			break
		}
		token = next
	}
	sortInfos(blobs)
	slices.Sort(folders)
	return blobs, folders, nil
}

// within returns the prefix of the store's keys in the bucket.
func (s *Store) within() string {
	if s.cfg.Prefix == "" {
		return ""
	}
	return s.cfg.Prefix + "/"
}

// appendInfos adds the objects of a page, less the folders that a console made.
func appendInfos(out []blob.Info, page []Object, within string) []blob.Info {
	for _, o := range page {
		key := strings.TrimPrefix(o.Key, within)
		if key == "" || strings.HasSuffix(key, "/") {
			continue
		}
		out = append(out, blob.Info{Key: key, Size: o.Size, ModTime: o.ModTime})
	}
	return out
}

// sortInfos is needed because some servers walk folders, whose order is not that of
// the keys.
func sortInfos(infos []blob.Info) {
	slices.SortFunc(infos, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return err
	}
	err := s.api.Delete(ctx, s.Full(key))
	if isAbsent(err) {
		return nil
	}
	return s.Explain(ctx, "delete", key, err)
}

// Sweep implements blob.Sweeper: it aborts the uploads below the store's prefix that began more than a
// day before now: what processes that died left behind costs space that no
// listing shows. It returns how many there were.
func (s *Store) Sweep(ctx context.Context, now time.Time) (aborted int, err error) {
	for token := ""; ; {
		page, next, err := s.api.Uploads(ctx, s.cfg.Prefix, token)
		if err != nil {
			return aborted, s.Explain(ctx, "list the uploads of", "", err)
		}
		for _, u := range page {
			if now.Sub(u.Started) < staleUpload || !s.owns(u.Key) {
				continue
			}
			if err := s.api.Abort(ctx, u.Key, u.ID); err != nil && !isGone(err) {
				return aborted, fmt.Errorf("abort an upload: %w", s.Explain(ctx, "abort", u.Key, err))
			}
			aborted++
		}
		if next == "" {
			return aborted, nil
		}
		token = next
	}
}

// owns reports whether a key of the bucket is below the store's prefix.
func (s *Store) owns(key string) bool {
	return s.cfg.Prefix == "" || strings.HasPrefix(key, s.cfg.Prefix+"/")
}

// isGone reports that an upload is completed or aborted already.
func isGone(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Code == "NoSuchUpload"
}
