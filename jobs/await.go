package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// placesPause is how long a process waits before it looks again for servers that it needs.
const placesPause = 500 * time.Millisecond

// AwaitServers waits until every server that a job of a cluster needs has an address in the
// file that PlacesKey names, and sets them as variables of the environment. A
// process without such a file gets its addresses in another way.
func AwaitServers(ctx context.Context, w io.Writer, program string) error {
	name := os.Getenv(PlacesKey)
	if name == "" {
		return nil
	}
	for said := false; ; said = true {
		found, missing, err := readPlaces(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", PlacesKey, err)
		}
		if err == nil && len(missing) == 0 {
			return setPlaces(name, found)
		}
		if err != nil {
			missing = []string{name + " is not there yet"}
		}
		if !said {
			fmt.Fprintf(w, "%s waits for servers of the cluster: %s\n", program, strings.Join(missing, ", "))
		}
		select {
		case <-time.After(placesPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setPlaces puts the addresses of a file into the environment.
func setPlaces(name string, found map[string]string) error {
	for key, value := range found {
		if err := os.Setenv(key, value); err != nil {
			return fmt.Errorf("%s: %s: %w", name, key, err)
		}
	}
	return nil
}

// readPlaces reads the addresses of servers, and the names of those that have none.
func readPlaces(name string) (found map[string]string, missing []string, err error) {
	f, err := os.Open(name) //nolint:gosec // named by the job
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // only read
	found = map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if who, ok := strings.CutPrefix(line, PlacesMissing); ok {
			missing = append(missing, who)
		} else if key, value, ok := strings.Cut(line, "="); ok {
			found[key] = value
		}
	}
	return found, missing, lines.Err()
}
