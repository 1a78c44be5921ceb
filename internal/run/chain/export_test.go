package chain

import (
	"context"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Objects returns the Refs of all objects reachable from the manifests, by key. Of an
// object that was made again the newest Ref counts.
func (c *Chain) Objects(ctx context.Context, store blob.Store) (map[string]blob.Ref, error) {
	w := walk{store: store, layout: artifact.Layout{RunID: c.RunID}, depth: depthSmall}
	out := map[string]blob.Ref{}
	return out, w.all(ctx, c, func(o object) { out[o.want.Key] = o.want })
}
