package blob

import "context"

// Watcher is a Store whose server announces new keys.
type Watcher interface {
	// Watch calls seen for each blob that is stored under the prefix from now on,
	// with at least its key, until ctx ends or seen returns an error. An event may come
	// twice or, when a connection breaks, not at all: it is a hint to List. Errors:
	// those of ctx and of seen; ErrMisconfigured where the server has no such events.
	Watch(ctx context.Context, prefix string, seen func(Info) error) error
}
