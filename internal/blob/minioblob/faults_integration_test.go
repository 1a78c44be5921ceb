//go:build integration

package minioblob_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/minioblob"
)

func TestFaults(t *testing.T) {
	const stall = 300 * time.Millisecond
	server := blobtest.StartS3(t)
	proxy := blobtest.NewProxy(t, server.Endpoint)
	n := 0
	blobtest.RunFaults(t, proxy, large, stall, func(t *testing.T) blob.Store {
		n++
		s, err := minioblob.New(minioblob.Config{
			Endpoint: strings.TrimPrefix(proxy.URL, "http://"), Bucket: server.Bucket, Prefix: fmt.Sprintf("faults/%d", n), Region: server.Region,
			PartSize: 5 << 20, Concurrency: 2, Stall: stall,
		})
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
		return minioblob.New(minioblob.Config{Bucket: bucket, Region: server.Region, Endpoint: server.Address})
	})
}
