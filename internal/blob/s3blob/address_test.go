package s3blob_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/s3blob"
	"temper/internal/config"
)

// TestMistakesOfAddress: a wrong scheme and a certificate that nobody vouches
// for say what to change in the URL.
func TestMistakesOfAddress(t *testing.T) {
	bare(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, safe := httptest.NewServer(nothing), httptest.NewTLSServer(nothing)
	t.Cleanup(plain.Close)
	t.Cleanup(safe.Close)
	for endpoint, want := range map[string]string{
		strings.Replace(plain.URL, "http:", "https:", 1): "speaks plain HTTP, not TLS",
		safe.URL: "name its authority's file by ca=",
	} {
		store, err := s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Region: "us-east-1", Endpoint: endpoint, PathStyle: true}, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Stat(t.Context(), "x")
		if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s gave %v, want one line with %q", endpoint, err, want)
		}
	}
}
