package blob

import (
	"context"
	"time"
)

// Sweeper is a Store that removes the remains of dead writers, which take space and are in
// no listing.
type Sweeper interface {
	// Sweep removes what writes that began more than a day before now left behind
	// and returns their number. It never touches a blob and is idempotent.
	Sweep(ctx context.Context, now time.Time) (removed int, err error)
}
