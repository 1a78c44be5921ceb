package plugin

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// responsePatience is how long an index may take to begin an answer, and to go on with it.
const responsePatience = time.Minute

// Installed describes a plugin that Install put where it is. It is stored beside the
// plugin, with ".json" after its name.
type Installed struct {
	Package     string `json:"package"`
	Version     string `json:"version"`
	WheelSHA256 string `json:"wheel_sha256"`
	SHA256      string `json:"sha256"` // of the plugin
	Size        int64  `json:"size"`   // of the plugin, in bytes
}

// Source says where a wheel comes from.
type Source struct {
	// File is a wheel on this machine; empty asks the index of packages that pip is set to.
	File string
	// Say is told what is being done; it may be nil.
	Say func(string)
}

// Install unpacks the plugin of a pinned wheel into dir and returns its path. A plugin
// that is there already from the same wheel stays; another build of it is replaced, all
// at once. fresh is false where there was nothing to do.
func Install(ctx context.Context, p Pin, dir string, from Source) (path string, fresh bool, err error) {
	if err := p.fits(); err != nil {
		return "", false, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, err
	}
	path = filepath.Join(dir, p.File())
	if have, err := Describe(path); err == nil && have.WheelSHA256 == p.SHA256 && have.verify(path) == nil {
		return path, false, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // libraries are for everybody
		return "", false, fmt.Errorf("folder of plugins: %w", err)
	}
	scratch, err := os.MkdirTemp(dir, ".install-")
	if err != nil {
		return "", false, fmt.Errorf("folder of plugins: %w", err)
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // what is left is hidden and named for what it is
	wheel := from.File
	if wheel == "" {
		wheel = filepath.Join(scratch, p.Wheel)
		if err := fetch(ctx, p, wheel, from.Say); err != nil {
			return "", false, fmt.Errorf("fetch %s %s: %w", p.Package, p.Version, err)
		}
	}
	if err := p.verifyWheel(wheel); err != nil {
		return "", false, err
	}
	if err := unpack(p, wheel, scratch, path); err != nil {
		return "", false, fmt.Errorf("unpack %s: %w", p.Wheel, err)
	}
	return path, true, nil
}

// fetch downloads the wheel.
func fetch(ctx context.Context, p Pin, to string, say func(string)) error {
	settings, err := readPip()
	if err != nil {
		return err
	}
	client, err := settings.client()
	if err != nil {
		return err
	}
	at, err := settings.locate(ctx, client, p)
	if err != nil {
		return err
	}
	if say != nil {
		say(fmt.Sprintf("fetching %s (%.0f MB)", p.Wheel, float64(p.Size)/1e6))
	}
	return download(ctx, client, at, to, p.Size+1, responsePatience) // more is the wrong file already
}

// download stores at most so many bytes of what is at an address. It gives up when nothing
// comes for as long as patience.
func download(ctx context.Context, client *http.Client, at *url.URL, to string, most int64, patience time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := get(ctx, client, at, "*/*")
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	f, err := os.Create(to) //nolint:gosec // in a folder of our own
	if err != nil {
		return err
	}
	silence := time.AfterFunc(patience, func() {
		stop(fmt.Errorf("%s: nothing came for %s", shown(at), patience))
	})
	defer silence.Stop()
	_, err = io.Copy(f, io.LimitReader(reset{resp.Body, silence, patience}, most))
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, f.Close())
}

// reset begins to wait anew whenever something came.
type reset struct {
	io.Reader
	silence  *time.Timer
	patience time.Duration
}

func (r reset) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.silence.Reset(r.patience)
	}
	return n, err
}

// verifyWheel refuses a wheel that is not the pinned one.
func (p Pin) verifyWheel(path string) error {
	sum, size, err := sumFile(path)
	if err != nil {
		return err
	}
	if sum != p.SHA256 {
		return fmt.Errorf("%s: %d bytes with the SHA-256 %s, want %d bytes with %s, the wheel of %s %s", path, size, sum, p.Size, p.SHA256, p.Package, p.Version)
	}
	return nil
}

// unpack puts the plugin of a wheel in its place. The description goes first: while the
// two do not belong together, the description does not hold, and Install begins anew.
func unpack(p Pin, wheel, scratch, path string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer archive.Close() //nolint:errcheck // read only
	member, err := archive.Open(p.Member)
	if err != nil {
		return err
	}
	defer member.Close() //nolint:errcheck // read only
	library := filepath.Join(scratch, p.File())
	f, err := os.OpenFile(library, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // a library for everybody
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), member)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	about, err := json.MarshalIndent(Installed{
		Package: p.Package, Version: p.Version, WheelSHA256: p.SHA256, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n,
	}, "", "  ")
	if err != nil {
		return err
	}
	description := library + ".json"
	if err := os.WriteFile(description, append(about, '\n'), 0o644); err != nil { //nolint:gosec // for everybody
		return err
	}
	if err := os.Rename(description, path+".json"); err != nil {
		return err
	}
	if err := os.Rename(library, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes renames in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder of plugins
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Describe returns what is known of an installed plugin. A plugin that did not come by
// Install has no description: os.ErrNotExist.
func Describe(path string) (Installed, error) {
	data, err := os.ReadFile(path + ".json") //nolint:gosec // beside a plugin that the user chose
	if err != nil {
		return Installed{}, err
	}
	var in Installed
	if err := json.Unmarshal(data, &in); err != nil {
		return Installed{}, fmt.Errorf("%s.json: %w", path, err)
	}
	return in, nil
}

// Verify reports whether the plugin at path is, byte by byte, the one that was installed.
func Verify(path string) error {
	in, err := Describe(path)
	if err != nil {
		return err
	}
	return in.verify(path)
}

func (in Installed) verify(path string) error {
	sum, size, err := sumFile(path)
	if err == nil && (sum != in.SHA256 || size != in.Size) {
		err = fmt.Errorf("%s: has changed since it was installed from %s %s; install it again", path, in.Package, in.Version)
	}
	return err
}

// sumFile is the SHA-256 of a file, in hexadecimal, and its size.
func sumFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path) //nolint:gosec // a file that the user names
	if err != nil {
		return "", 0, err
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// certificates reads a file of certificates, which come on top of the system's.
func certificates(path string) (*tls.Config, error) {
	pem, err := os.ReadFile(path) //nolint:gosec // named by the user's settings
	if err != nil {
		return nil, fmt.Errorf("certificates of pip: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificates of pip: %s has none", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
