package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// registryKey names the registry of packages, as npm does.
const registryKey = "NPM_CONFIG_REGISTRY"

// registry is the address of the packages.
func registry() string {
	return strings.TrimSuffix(cmp.Or(os.Getenv(registryKey), "https://registry.npmjs.org"), "/")
}

// maxArchive bounds a published archive.
const maxArchive = 32 << 20

// vendor replaces a library by another version: its files in ui/vendor and its entry in
// vendor.json. What is published must have the sha512 that the registry states.
func vendor(ctx context.Context, root, spec string) error {
	at := strings.LastIndex(spec, "@")
	if at <= 0 {
		return fmt.Errorf("%q: want NAME@VERSION", spec)
	}
	name, version := spec[:at], spec[at+1:]
	libraries, err := readLibraries(root)
	if err != nil {
		return err
	}
	for i := range libraries {
		if libraries[i].Name != name {
			continue
		}
		if err := replace(ctx, root, &libraries[i], version); err != nil {
			return fmt.Errorf("%s: %w", spec, err)
		}
		data, err := json.MarshalIndent(libraries, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "vendor", "vendor.json"), append(data, '\n'), 0o644)
	}
	return fmt.Errorf("%s is not in ui/vendor/vendor.json: add its name, files and modules there first", name)
}

func replace(ctx context.Context, root string, l *library, version string) error {
	about, err := fetch(ctx, registry()+"/"+url.PathEscape(l.Name)+"/"+url.PathEscape(version))
	if err != nil {
		return err
	}
	var published struct {
		License string `json:"license"`
		Dist    struct {
			Tarball   string `json:"tarball"`
			Integrity string `json:"integrity"`
		} `json:"dist"`
	}
	if err := json.Unmarshal(about, &published); err != nil {
		return err
	}
	archive, err := fetch(ctx, published.Dist.Tarball)
	if err != nil {
		return err
	}
	have := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(have[:]); got != published.Dist.Integrity {
		return fmt.Errorf("the archive has %s, and the registry says %s", got, published.Dist.Integrity)
	}
	files, err := unpack(archive)
	if err != nil {
		return err
	}
	for local, f := range l.Files {
		data, ok := files["package/"+f.Path]
		if !ok {
			return fmt.Errorf("the archive has no %s", f.Path)
		}
		data = withoutMap(data)
		if err := os.WriteFile(filepath.Join(root, "vendor", local), data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "%s: %s\n", local, sum(data))
		l.Files[local] = vendored{Path: f.Path, SHA256: sum(data)}
	}
	l.Version, l.Integrity, l.Licence, l.Reviewed = version, published.Dist.Integrity, published.License, "not yet"
	return nil
}

// withoutMap leaves out the comment that points to a source map: it is not vendored, and
// a browser would ask for it.
func withoutMap(data []byte) []byte {
	at := bytes.LastIndex(data, []byte("\n//# sourceMappingURL="))
	if at < 0 {
		return data
	}
	return data[:at+1]
}

func fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxArchive))
}

func unpack(archive []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if out[h.Name], err = io.ReadAll(io.LimitReader(t, maxArchive)); err != nil {
			return nil, err
		}
	}
}
