//go:build integration

package minioblob_test

import (
	"errors"
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
	for name, row := range map[string]struct {
		access, secret, bucket string
		advice                 string
	}{
		"a wrong secret":  {blobtest.AccessKey, "hunter2-hunter2", server.Bucket, "credentials are refused"},
		"a wrong account": {"nobody", "hunter2-hunter2", server.Bucket, "credentials are refused"},
		"no such bucket":  {blobtest.AccessKey, blobtest.SecretKey, "no-such-bucket", "bucket does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", row.access)
			t.Setenv("AWS_SECRET_ACCESS_KEY", row.secret)
			s, err := minioblob.New(minioblob.Config{Bucket: row.bucket, Region: server.Region, Endpoint: server.Address})
			if err == nil {
				err = blob.Probe(t.Context(), s)
			}
			if !errors.Is(err, blob.ErrMisconfigured) || !strings.Contains(err.Error(), row.advice) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, row.advice)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), blobtest.SecretKey)) {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}
