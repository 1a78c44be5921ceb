//go:build integration

package minioblob_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/minioblob"
	"temper/internal/config"
)

// opener returns stores that are empty because each has a prefix of its own.
func opener(s blobtest.S3Server) func(*testing.T) blob.Store {
	n := 0
	return func(t *testing.T) blob.Store {
		n++
		return open(t, s, fmt.Sprintf("test/%d", n))
	}
}

func open(t *testing.T, s blobtest.S3Server, prefix string) *minioblob.Store {
	t.Helper()
	store, err := minioblob.New(config.StorePlace{
		Endpoint: s.Address, TLS: s.CA != "", Bucket: s.Bucket, Prefix: prefix, Region: s.Region, CA: s.CA, PartSize: 5 << 20,
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

const large = 3*(5<<20) + 4321

// TestMinIO runs on a server that is given, as one is not built for the tests.
func TestMinIO(t *testing.T) {
	server := blobtest.MinIO(t)
	prefix := rand.Text()
	n := 0
	next := func(t *testing.T) blob.Store {
		n++
		s := open(t, server, fmt.Sprintf("%s/%d", prefix, n))
		if err := s.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	blobtest.Run(t, next)
	blobtest.RunLarge(t, large, next)
	t.Run("Watch tells of new keys", func(t *testing.T) { watch(t, open(t, server, prefix+"/watch")) })
}

func watch(t *testing.T, s *minioblob.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the server takes its time to begin
	defer cancel()
	found := errors.New("found")
	go func() { // again and again, as the watch starts at an unknown moment
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = blob.PutBytes(ctx, s, "other/x", nil, blob.Always)
			_, _ = blob.PutBytes(ctx, s, fmt.Sprintf("policies/a b+%d", i), []byte("x"), blob.Always)
			time.Sleep(50 * time.Millisecond)
		}
	}()
	err := s.Watch(ctx, "policies/", func(info blob.Info) error {
		if !strings.HasPrefix(info.Key, "policies/a b+") || info.Size != 1 {
			return fmt.Errorf("watched policies/ and saw %+v", info)
		}
		return found
	})
	if !errors.Is(err, found) {
		t.Errorf("Watch gave %v", err)
	}
}

// TestBootstrapMakesTheBucket asks the S3 server for a bucket that it does not have.
func TestBootstrapMakesTheBucket(t *testing.T) {
	server := blobtest.StartS3(t)
	server.Bucket = "another-bucket"
	s := open(t, server, "p")
	if err := blob.Probe(t.Context(), s); !errors.Is(err, blob.ErrMisconfigured) {
		t.Errorf("before: %v, want ErrMisconfigured", err)
	}
	for range 2 {
		if err := s.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := blob.Probe(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestWatchNeedsMinIO(t *testing.T) {
	s := open(t, blobtest.StartS3(t), "p")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Watch(ctx, "", func(blob.Info) error { return nil })
	if !errors.Is(err, blob.ErrMisconfigured) {
		t.Errorf("Watch gave %v, want ErrMisconfigured", err)
	}
}

func TestConformance(t *testing.T) {
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--tls"}, "versions": {"--versions"}} {
		t.Run(name, func(t *testing.T) {
			server := blobtest.StartS3(t, args...)
			next := opener(server)
			blobtest.Run(t, next)
			blobtest.RunLarge(t, large, next)
		})
	}
}
