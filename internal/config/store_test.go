package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

func TestParseStore(t *testing.T) {
	for text, want := range map[string]config.StorePlace{
		"file:///var/lib/x/": {Kind: config.StoreFile, Dir: "/var/lib/x"},
		"s3://b":             {Kind: config.StoreS3, Bucket: "b"},
		"s3://b/p/q/?region=eu-west-1&endpoint=http://127.0.0.1:9000&path_style=true&part_size=8MiB&concurrency=2": {
			Kind: config.StoreS3, Bucket: "b", Prefix: "p/q", Region: "eu-west-1",
			Endpoint: "http://127.0.0.1:9000", PathStyle: true, PartSize: 8 << 20, Concurrency: 2,
		},
		"minio://h:9000/b/p?tls=true&ca=/etc/ca.pem": {
			Kind: config.StoreMinIO, Endpoint: "h:9000", Bucket: "b", Prefix: "p", TLS: true, CA: "/etc/ca.pem", PathStyle: true,
		},
		"s3d://127.0.0.1:9000/p?concurrency=2": {
			Kind: config.StoreS3D, Endpoint: "http://127.0.0.1:9000", Bucket: config.S3DBucket, Prefix: "p", PathStyle: true, Concurrency: 2,
		},
		"s3d://[::1]:9000": {Kind: config.StoreS3D, Endpoint: "http://[::1]:9000", Bucket: config.S3DBucket, PathStyle: true},
	} {
		got, err := config.ParseStore(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, want (-) got (+):\n%s", text, diff)
		}
	}
}

func TestParseStoreRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"/var/lib":                         "want file, s3, minio or s3d",
		"gs://bucket":                      "want file, s3, minio or s3d",
		"file://relative/dir":              "three slashes",
		"file:///x?tls=true":               "takes none",
		"s3://":                            "names no bucket",
		"s3://b/../c":                      "clean path",
		"s3://b?endpoint=host:9000":        "want http://",
		"s3://b?part_size=1MiB":            "want 5MiB",
		"s3://b?concurrency=many":          "cannot read",
		"minio://host/bucket":              "no host and port",
		"minio://host:1":                   "names no bucket",
		"s3d://10.0.0.1:9000":              "no loopback address",
		"s3d://temper":                     "no loopback address",
		"s3d://127.0.0.1:0":                "no loopback address",
		"s3d://127.0.0.1:9000?tls=true":    "unknown option",
		"s3://b#x":                         "fragment",
		"s3://key:hunter2@b":               "holds a user or a password",
		"s3://b?secret_access_key=hunter2": "unknown option",
		"s3://b:%zz hunter2":               "is not a URL",
	} {
		_, err := config.ParseStore(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %q in it", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func TestAllProblemsOfAStoreAreToldAtOnce(t *testing.T) {
	p := config.DefaultProcess()
	p.Store = "s3://u:hunter2@b?tls=1&concurrency=99"
	err := p.Validate()
	if err == nil || strings.Count(err.Error(), "store (TEMPER_STORE)") != 3 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Validate gave %v, want three problems without the password", err)
	}
}
