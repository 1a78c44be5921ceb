//go:build integration

package minioblob_test

import (
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/minioblob"
	"temper/internal/config"
)

func TestFaults(t *testing.T) {
	server := blobtest.StartS3(t)
	proxy := blobtest.NewProxy(t, server.Endpoint)
	blobtest.RunFaults(t, proxy, large, func(t *testing.T, folder string, stall time.Duration) blob.Store {
		s, err := minioblob.New(config.StorePlace{
			Endpoint: strings.TrimPrefix(proxy.URL, "http://"), Bucket: server.Bucket, Prefix: "faults/" + folder, Region: server.Region,
			PartSize: 5 << 20, Concurrency: 2,
		}, stall)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestMistakesAreToldInOneLine: a wrong account, bucket or address stays wrong.
func TestMistakesAreToldInOneLine(t *testing.T) {
	server := blobtest.StartS3(t)
	blobtest.RunMistakes(t, server, func(_ *testing.T, bucket string) (blob.Store, error) {
		return minioblob.New(config.StorePlace{Bucket: bucket, Region: server.Region, Endpoint: server.Address}, 0)
	})
}
