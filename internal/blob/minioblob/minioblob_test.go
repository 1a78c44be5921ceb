package minioblob_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/minioblob"
	"temper/internal/config"
)

// TestBucketNameIsAMistake: it stays wrong however often a server is asked.
func TestBucketNameIsAMistake(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	_, err := minioblob.New(config.StorePlace{Endpoint: "127.0.0.1:9", Bucket: "B_", Prefix: "p"}, 0)
	if !errors.Is(err, blob.ErrMisconfigured) || !strings.Contains(err.Error(), `the bucket's name "B_" is not valid`) {
		t.Errorf("error %v, want a misconfigured store", err)
	}
}
