package graphcache

import (
	"fmt"
	"os"
	"path/filepath"
)

// DirKey is the environment variable with the folder of compiled programs. "off" keeps none.
// The default is temper/graphs in the user's cache folder.
const DirKey = "TEMPER_GRAPH_CACHE"

// maxBytes bounds the compiled programs on disk.
const maxBytes = 4 << 30

// openDefault opens the store of this user; nil when it is off.
func openDefault() (*Store, error) {
	dir := os.Getenv(DirKey)
	switch dir {
	case "off":
		return nil, nil
	case "":
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "temper", "graphs")
	}
	s, err := OpenStore(dir, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("compiled programs (%s): %w", DirKey, err)
	}
	return s, nil
}
