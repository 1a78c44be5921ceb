package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// StoreKind is a driver of the store.
type StoreKind string

// The drivers.
const (
	StoreFile  StoreKind = "file"
	StoreS3    StoreKind = "s3"
	StoreMinIO StoreKind = "minio"
	// StoreS3D is the S3 server that `temper up` starts, with its data below Home.
	StoreS3D StoreKind = "s3d"
)

// StorePlace is where the store is, as a store URL says:
//
//	file:///folder
//	s3://bucket/prefix?region=R&endpoint=https://host:port&path_style=true
//	minio://host:port/bucket/prefix?tls=true&region=R
//	s3d://127.0.0.1:port/prefix
//
// It never holds a secret: those come from the environment and the credential
// chains of the drivers, or from the file Account.
type StorePlace struct {
	Kind StoreKind
	// Dir is the folder of StoreFile.
	Dir string
	// Bucket and Prefix are where keys begin; the prefix has no slash at its ends.
	Bucket, Prefix string
	// Endpoint is host:port for StoreMinIO and a URL for StoreS3, where "" is AWS.
	Endpoint string
	// Account is the file with the account of StoreS3D, in the form of ~/.aws/credentials.
	// Process.StorePlace knows it. Its default profile replaces the chain of credentials.
	Account string
	// Region is "" where the driver finds it out.
	Region string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
	// TLS encrypts and authenticates StoreMinIO.
	TLS bool
	// CA is a file of certificates to trust besides the system's, "" for none.
	CA string
	// PartSize is the length of the parts of large blobs, 0 for the default.
	PartSize Bytes
	// Concurrency is the number of parts of one blob in transfer at a time, 0 for the default.
	Concurrency int
}

// minPartSize and maxPartSize are limits of S3.
const (
	minPartSize Bytes = 5 << 20
	maxPartSize Bytes = 5 << 30
)

// storeOptions are the query keys that each driver knows.
var storeOptions = map[StoreKind][]string{
	StoreFile:  {},
	StoreS3:    {"region", "endpoint", "path_style", "ca", "part_size", "concurrency"},
	StoreMinIO: {"region", "tls", "ca", "part_size", "concurrency"},
	StoreS3D:   {"part_size", "concurrency"},
}

// S3DBucket is the one bucket of StoreS3D.
const S3DBucket = "temper"

// ParseStore reads a store URL. The error names every problem and repeats no secret.
func ParseStore(text string) (StorePlace, error) {
	u, err := url.Parse(text)
	if err != nil { // whose text would repeat the URL
		return StorePlace{}, errors.New("is not a URL: want file:///folder, s3://bucket/prefix, minio://host:port/bucket/prefix or s3d://127.0.0.1:port")
	}
	s := StorePlace{Kind: StoreKind(u.Scheme)}
	known, ok := storeOptions[s.Kind]
	if !ok {
		return StorePlace{}, fmt.Errorf("has the scheme %q: want file, s3, minio or s3d", u.Scheme)
	}
	var problems []error
	if u.User != nil {
		problems = append(problems, errors.New("holds a user or a password: take them out, "+
			"the credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or the SDK's profile"))
	}
	if u.Fragment != "" {
		problems = append(problems, errors.New("has a fragment after #: take it out"))
	}
	problems = append(problems, s.place(u), s.options(u, known))
	return s, errors.Join(problems...)
}

// place reads host and path.
func (s *StorePlace) place(u *url.URL) error {
	bucketPath := u.Host + u.Path
	switch s.Kind {
	case StoreFile:
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return errors.New("is no absolute folder: want file:///folder with three slashes")
		}
		s.Dir = filepath.Clean(u.Path)
		return nil
	case StoreMinIO:
		if u.Port() == "" || u.Hostname() == "" {
			return errors.New("has no host and port: want minio://host:port/bucket/prefix")
		}
		s.Endpoint, bucketPath = u.Host, strings.TrimPrefix(u.Path, "/")
		s.PathStyle = true
	case StoreS3D:
		// Plain HTTP and an account in a file: nothing for a network.
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 || !net.ParseIP(u.Hostname()).IsLoopback() {
			return errors.New("is no loopback address with a port: want s3d://127.0.0.1:port; to share a server, start s3d with --tls and name it by s3://")
		}
		s.Endpoint, s.PathStyle, bucketPath = "http://"+u.Host, true, S3DBucket+u.Path
	case StoreS3:
	}
	s.Bucket, s.Prefix, _ = strings.Cut(bucketPath, "/")
	s.Prefix = strings.Trim(s.Prefix, "/")
	if s.Bucket == "" || strings.ContainsAny(s.Bucket, ":@") {
		return fmt.Errorf("names no bucket: want %s", map[StoreKind]string{
			StoreS3: "s3://bucket/prefix", StoreMinIO: "minio://host:port/bucket/prefix",
		}[s.Kind])
	}
	if s.Prefix != "" && (path.Clean(s.Prefix) != s.Prefix || s.Prefix == ".." || strings.HasPrefix(s.Prefix, "../")) {
		return fmt.Errorf("has the prefix %q: want a clean path", s.Prefix)
	}
	return nil
}

// options reads the query.
func (s *StorePlace) options(u *url.URL, known []string) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("has a malformed query after ?")
	}
	var problems []error
	for key, values := range query {
		if !slices.Contains(known, key) { // the value may be a secret that was put there
			problems = append(problems, fmt.Errorf("has the unknown option %q: %s takes %s", key, s.Kind, optionList(known)))
			continue
		}
		if err := s.option(key, values[len(values)-1]); err != nil {
			problems = append(problems, fmt.Errorf("option %s: %w", key, err))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

func optionList(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}

func (s *StorePlace) option(key, value string) (err error) {
	switch key {
	case "region":
		s.Region = value
	case "ca":
		s.CA = value
	case "endpoint":
		e, parseErr := url.Parse(value)
		if parseErr != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" {
			return errors.New("want http://host:port or https://host:port")
		}
		s.Endpoint = e.Scheme + "://" + e.Host
	case "path_style":
		s.PathStyle, err = strconv.ParseBool(value)
	case "tls":
		s.TLS, err = strconv.ParseBool(value)
	case "part_size":
		if err = s.PartSize.UnmarshalText([]byte(value)); err == nil && (s.PartSize < minPartSize || s.PartSize > maxPartSize) {
			return fmt.Errorf("is %v, want %v to %v", s.PartSize, minPartSize, maxPartSize)
		}
	case "concurrency":
		if s.Concurrency, err = strconv.Atoi(value); err == nil && (s.Concurrency < 1 || s.Concurrency > 64) {
			return fmt.Errorf("is %d, want 1 to 64", s.Concurrency)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot read %q", value)
	}
	return nil
}

// String is the place for people, without its options.
func (s StorePlace) String() string {
	switch s.Kind {
	case StoreS3:
		return "s3://" + path.Join(s.Bucket, s.Prefix)
	case StoreMinIO:
		return "minio://" + path.Join(s.Endpoint, s.Bucket, s.Prefix)
	case StoreS3D:
		return "s3d://" + path.Join(strings.TrimPrefix(s.Endpoint, "http://"), s.Prefix)
	case StoreFile:
	}
	return s.Dir
}
