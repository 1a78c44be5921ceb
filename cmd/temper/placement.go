package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/placement"
)

const placementUsage = `workers of its own on a cluster: JSON such as {"trainer": {"count": 1, "devices": {"amd/gpu": 8}}}, or a file with it`

// parsePlacement reads --placement: JSON, or the name of a file with it; "" is none.
func parsePlacement(text string) (*placement.Spec, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none
	}
	data := []byte(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if data, err = os.ReadFile(text); err != nil {
			return nil, cli.Usage(fmt.Errorf("--placement: %w", err))
		}
	}
	var spec placement.Spec
	if err := config.DecodeInput(bytes.TrimSpace(data), &spec).Err(); err != nil {
		return nil, cli.Usage(fmt.Errorf("--placement: %w", err))
	}
	if wrong := spec.Check(); len(wrong) > 0 {
		return nil, cli.Usage(errors.New("--" + strings.Join(wrong, "\n--")))
	}
	return &spec, nil
}
