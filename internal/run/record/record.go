// Package record owns the two stored forms of trajectories: lines of JSON, which
// people read, and the compact record, for groups with so many tokens that their
// lines would fill the store. It reads both, and knows no store and no run.
//
// Invariant: what is decoded equals what was encoded, bit for bit, except for the
// fields that Trajectory does not store and, in the compact record, for Text, which
// the tokens say. Equal trajectories give equal bytes.
package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"temper/internal/rl"
)

// compactAbove is the number of tokens up to which a group is stored as lines: some 1.5 MB
// of them.
const compactAbove = 1 << 16

// IsLarge reports whether a group of so many tokens is stored as a compact record.
func IsLarge(tokens int) bool { return tokens > compactAbove }

// Lines writes trajectories as JSON, one object a line.
func Lines(ts []rl.Trajectory) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range ts {
		if err := enc.Encode(&ts[i]); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// IsCompact reports whether stored bytes are a compact record.
func IsCompact(data []byte) bool { return bytes.HasPrefix(data, []byte(magic)) }

// Decode reads trajectories in either form. Trajectories of a compact record have no Text.
// The error names the first one that cannot be read.
func Decode(data []byte) ([]rl.Trajectory, error) {
	if IsCompact(data) {
		packed, err := DecodePacked(data)
		if err != nil {
			return nil, err
		}
		return unpackAll(packed)
	}
	if bytes.HasPrefix(data, []byte(magicBefore)) {
		return nil, errBefore
	}
	var out []rl.Trajectory
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // such as those of calls before v0.1.0
	for dec.More() {
		var t rl.Trajectory
		err := dec.Decode(&t)
		if err != nil && strings.Contains(err.Error(), "unknown field") {
			err = fmt.Errorf("%w: %w", err, errBefore)
		}
		if err == nil {
			err = t.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("trajectory %d: %w", len(out)+1, err)
		}
		out = append(out, t)
	}
	return out, nil
}

func unpackAll(packed []Packed) ([]rl.Trajectory, error) {
	out := make([]rl.Trajectory, len(packed))
	for i := range packed {
		var err error
		if out[i], err = packed[i].Unpack(); err != nil {
			return nil, fmt.Errorf("trajectory %d: %w", i+1, err)
		}
	}
	return out, nil
}
