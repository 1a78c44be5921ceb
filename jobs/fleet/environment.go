package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/nomad"
)

// clientFiles maps the TLS files of a client of the cluster to the items that hold them.
var clientFiles = map[string]string{"ca.pem": jobs.ItemCA, "cert.pem": role.Control + "_" + jobs.ItemCert, "key.pem": role.Control + "_" + jobs.ItemKey}

// Environment returns the variables with which commands on this machine reach the cluster:
// its Temporal, its store, and the gateway for tools. It writes the TLS files into the
// folder.
func (f *Fleet) Environment(ctx context.Context, folder string) (map[string]string, error) {
	path := vaultPath(f.build)
	items, _, err := readVariable(ctx, f.nomad, path)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("%w in the variable %s of Nomad: make them with temper cluster init", ErrNoSecrets, path)
	}
	out := map[string]string{"TEMPER_SANDBOX_TOKEN": items[jobs.ItemSandboxToken]}
	if f.build.TLS {
		if folder, err = writeFiles(folder, items); err != nil {
			return nil, err
		}
		for key, file := range map[string]string{"CA": "ca.pem", "CERT": "cert.pem", "KEY": "key.pem"} {
			out["TEMPER_SANDBOX_TLS_"+key] = filepath.Join(folder, file)
		}
	}
	if out["TEMPORAL_ADDRESS"], err = NewRuns(f).TemporalAddress(ctx); err != nil {
		return nil, err
	}
	if out["TEMPER_SANDBOX_ADDRESS"], err = f.addressOf(ctx, role.Gateway); err != nil {
		return nil, err
	}
	if f.build.Store != "" {
		out["TEMPER_STORE"] = f.build.Store
		return out, nil
	}
	address, err := f.addressOf(ctx, role.ObjectStore)
	if err != nil {
		return nil, err
	}
	out["TEMPER_STORE"] = f.build.StoreAt(address, filepath.Join(folder, "ca.pem"))
	out["AWS_ACCESS_KEY_ID"], out["AWS_SECRET_ACCESS_KEY"] = items[jobs.ItemAccessKey], items[jobs.ItemSecretKey]
	return out, nil
}

// writeFiles writes the TLS files of a client, readable only by the owner. It returns the
// absolute path of the folder, since commands may run in another directory.
func writeFiles(folder string, items map[string]string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("files of TLS: %w", err)
	}
	for name, item := range clientFiles {
		if items[item] == "" {
			return "", fmt.Errorf("%w: %s: make it with temper cluster init", ErrNoSecrets, item)
		}
		path := filepath.Join(folder, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // others may have the old file open
			return "", fmt.Errorf("files of TLS: %w", err)
		}
		if err := os.WriteFile(path, []byte(items[item]), 0o600); err != nil {
			return "", fmt.Errorf("files of TLS: %w", err)
		}
	}
	return folder, nil
}

// addressOf returns host:port of a role of this cluster.
func (f *Fleet) addressOf(ctx context.Context, role string) (string, error) {
	id := f.build.ID(role)
	found, _, err := f.nomad.Services().Get(id, nomad.Query(ctx))
	if err != nil {
		return "", f.nomad.Fail("find service "+id, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("service %s: %w: no %s of this cluster runs: temper cluster apply", id, nomad.ErrNotExist, role)
	}
	return net.JoinHostPort(found[0].Address, strconv.Itoa(found[0].Port)), nil
}
