package plugin

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Installed describes a plugin that Install unpacked. It is stored beside the plugin,
// with ".json" after its name.
type Installed struct {
	Package     string `json:"package"`
	Version     string `json:"version"`
	WheelSHA256 string `json:"wheel_sha256"`
	SHA256      string `json:"sha256"` // of the plugin
	Size        int64  `json:"size"`   // of the plugin, in bytes
}

// Source is the origin of a wheel.
type Source struct {
	// File is a wheel on this machine; empty downloads the wheel by the user's pip.
	File string
	// Progress receives the output of pip; it may be nil.
	Progress io.Writer
}

// Install unpacks the plugin of a pinned wheel into dir and returns its path. A plugin
// from the same wheel stays; another build is replaced in one rename. fresh is false when
// there was nothing to do. Each error is one line and names the way out.
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
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // every user may load the library
		return "", false, fmt.Errorf("folder of plugins: %w", err)
	}
	scratch, err := os.MkdirTemp(dir, ".install-")
	if err != nil {
		return "", false, fmt.Errorf("folder of plugins: %w", err)
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // best effort: the folder is hidden and its name tells its purpose
	wheel := from.File
	if wheel == "" {
		if err := p.download(ctx, scratch, from.Progress); err != nil {
			return "", false, fmt.Errorf("download %s %s: %w", p.Package, p.Version, err)
		}
		wheel = filepath.Join(scratch, p.Wheel)
	}
	if err := p.verifyWheel(wheel); err != nil {
		return "", false, err
	}
	if err := unpack(p, wheel, scratch, path); err != nil {
		return "", false, fmt.Errorf("unpack %s: %w", p.Wheel, err)
	}
	return path, true, nil
}

// verifyWheel refuses a wheel that is not the pinned one.
func (p Pin) verifyWheel(path string) error {
	sum, size, err := sumFile(path)
	if err != nil {
		return err
	}
	if sum != p.SHA256 {
		return fmt.Errorf("%s: %d bytes with the SHA-256 %s, want %d bytes with %s, the wheel of %s %s; download that one and name it with --from",
			path, size, sum, p.Size, p.SHA256, p.Package, p.Version)
	}
	return nil
}

// unpack writes the plugin of a wheel to path. It renames the description first: until the
// library follows, the description does not match it, and Install starts again.
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
	f, err := os.OpenFile(library, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // every user may load the library
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
	if err := os.WriteFile(description, append(about, '\n'), 0o644); err != nil { //nolint:gosec // every user may read the description
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

// Describe reads the description of an installed plugin. Error: os.ErrNotExist for a
// plugin that Install did not unpack.
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

// Verify returns an error unless the plugin at path has the bytes that Install wrote.
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

// sumFile returns the SHA-256 of a file, in hexadecimal, and its size in bytes.
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
