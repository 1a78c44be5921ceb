package blob

import (
	"context"
	"time"
)

// Sweeper is what a Store offers where the remains of dead writers take space
// that no listing shows.
type Sweeper interface {
	// Sweep removes what writes that began more than a day before now left behind
	// and returns their number. It never touches a blob and is idempotent.
	Sweep(ctx context.Context, now time.Time) (removed int, err error)
}
