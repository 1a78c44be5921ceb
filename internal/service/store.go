package service

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"temper/internal/config"
	"temper/internal/proc"
)

// An S3 server on this machine belongs to a home: its data and its account lie
// there, and the account is drawn at random once. The server gets it through its
// environment, clients read the file, and the sandbox gets neither.

// accountFormat is the format of ~/.aws/credentials, so that other clients can use the
// file.
const accountFormat = "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"

// ServesStore reports whether the service starts the server of the store.
func ServesStore(p *config.Process) bool {
	place, err := p.StorePlace()
	return err == nil && place.Kind == config.StoreS3D
}

// storeAccount is the account of the home's S3 server, made when there is none.
func storeAccount(p *config.Process) (access, secret string, err error) {
	place, err := p.StorePlace()
	if err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(place.Account)
	if errors.Is(err, fs.ErrNotExist) {
		text = fmt.Appendf(nil, accountFormat, rand.Text(), rand.Text())
		err = writeAccount(place.Account, text)
	}
	if err != nil {
		return "", "", fmt.Errorf("account of the S3 server: %w", err)
	}
	if _, err := fmt.Sscanf(string(text), accountFormat, &access, &secret); err != nil {
		return "", "", fmt.Errorf("%s is not as it was written: remove it and a new account is made (no data is lost)", place.Account)
	}
	return access, secret, nil
}

// writeAccount makes the whole file appear at once, for its owner alone.
func writeAccount(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "account-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after the rename the name is gone
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// StoreServerPath is where the S3 server is: beside this binary.
func StoreServerPath() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "s3d"), err
}

// FindStoreServer returns an error when the S3 server is not built.
func FindStoreServer() error {
	path, err := StoreServerPath()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s not found: build it with ./task build:s3d, or name another store", path)
	}
	return nil
}

// StoreChild is the S3 server of the store.
func StoreChild(p *config.Process) (proc.Child, error) {
	place, err := p.StorePlace()
	if err != nil {
		return proc.Child{}, err
	}
	path, err := StoreServerPath()
	if err != nil {
		return proc.Child{}, err
	}
	access, secret, err := storeAccount(p)
	if err != nil {
		return proc.Child{}, err
	}
	return proc.Child{
		Name: "s3", Path: path,
		Args: []string{"--dir", p.S3Dir(), "--listen", StoreAddress(place), "--bucket", config.S3DBucket, "--exit-with-parent"},
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret,
		},
		LogFile: filepath.Join(p.LogDir(), "s3.log"), StopTimeout: childStopTimeout,
		Ready: (&proc.Probe{Address: place.Endpoint, Patience: silence}).Alive,
	}, nil
}

// StoreAddress is host:port of the S3 server.
func StoreAddress(place config.StorePlace) string {
	return strings.TrimPrefix(place.Endpoint, "http://")
}
