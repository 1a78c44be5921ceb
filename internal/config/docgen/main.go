// Command docgen writes what is generated from the declarations of configurations
// and data: docs/configuration.md, docs/data.md and internal/config/schema.json. It
// takes types, ranges and defaults from package config and the descriptions from the
// comments in the source.
//
// Invariant: its output is a pure function of the source tree.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", "../..", "root of the module")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, data := range files {
		if err := os.WriteFile(filepath.Join(root, path), data, 0o644); err != nil { //nolint:gosec // documents are for everybody
			return err
		}
	}
	return nil
}

// generate returns the generated files by their path below root.
func generate(root string) (map[string][]byte, error) {
	comments, err := readComments(root, "internal/config", "internal/grpo", "internal/rl", "internal/chat")
	if err != nil {
		return nil, err
	}
	sections, err := comments.sections()
	if err != nil {
		return nil, err
	}
	process, err := comments.process()
	if err != nil {
		return nil, err
	}
	data, err := comments.dataPage()
	if err != nil {
		return nil, err
	}
	schema, err := schemaOf(sections[0])
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"docs/configuration.md":       configurationPage(sections, process),
		"docs/data.md":                data,
		"internal/config/schema.json": schema,
	}, nil
}
