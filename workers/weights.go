package workers

import (
	"log/slog"
	"os"

	"temper/trainer/weights/sharedmem"
)

// WeightsKey is the environment variable of the folder in which a trainer and the engines
// of its host share weights; "off" for none, empty for one in the memory of the host.
const WeightsKey = "TEMPER_SHARED_WEIGHTS"

// SharedWeights opens the memory in which processes of this host share weights; nil, and a
// line in the log, where there is none. Everything works without it, by the store.
func SharedWeights(log *slog.Logger) *sharedmem.Segments {
	folder := os.Getenv(WeightsKey)
	switch folder {
	case "off":
		return nil
	case "":
		folder = sharedmem.DefaultFolder()
	}
	host, err := sharedmem.Open(sharedmem.Config{Folder: folder, Available: func() int64 { return availableMemory(os.DirFS("/")) }, Log: log})
	if err != nil {
		log.Warn("weights are not shared on this host: engines read the store", "err", err)
		return nil
	}
	return host
}
