package hf

import (
	"errors"
	"fmt"
)

// named puts the name of a file before each of the joined errors.
func named(file string, err error) error {
	var out []error
	for _, e := range flatten(err) {
		out = append(out, fmt.Errorf("%s: %w", file, e))
	}
	return errors.Join(out...)
}

// flatten returns the errors that were joined, one line each.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}
