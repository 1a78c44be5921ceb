// Package testbin builds the programs of this repository for tests that start
// them as a person would. Only tests import it.
//
// Invariant: temper is always built from the sources of now; the servers, which
// take minutes to link, are built once and found again in bin/.
package testbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build puts temper, with build tags if any are given, temporald and s3d into the folder
// dir. root is the folder of the repository.
func Build(root, dir string, tags ...string) error {
	if err := goBuild(filepath.Join(root, "cmd/temper"), filepath.Join(dir, "temper"), tags...); err != nil {
		return err
	}
	for _, name := range []string{"temporald", "s3d"} {
		built, err := Server(root, name)
		if err != nil {
			return err
		}
		if err := os.Symlink(built, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Server returns the path of temporald or s3d in bin/, and builds it where it is missing.
func Server(root, name string) (string, error) {
	built, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(built); err != nil {
		return built, goBuild(filepath.Join(root, "tools", name), built)
	}
	return built, nil
}

// BuildBench puts temper-bench into the folder dir.
func BuildBench(root, dir string) error {
	out, err := filepath.Abs(filepath.Join(dir, "temper-bench"))
	if err != nil {
		return err
	}
	return goBuild(filepath.Join(root, "tools/bench"), out)
}

func goBuild(dir, out string, tags ...string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", out, ".") //nolint:gosec // folders of this repository
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", dir, err, text)
	}
	return nil
}

// Environment returns the environment of this process without the variables that would
// override the flags of a program.
func Environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TEMPORAL_") && !strings.HasPrefix(kv, "TEMPER_") {
			env = append(env, kv)
		}
	}
	return env
}
