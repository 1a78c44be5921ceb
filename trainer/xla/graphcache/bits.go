package graphcache

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// setting is something beside a program that decides what comes of it.
type setting struct{ name, value string }

// surroundings are all settings of a plugin, given the hash of its file, and a device: they
// decide what the compiler makes of a program, and so the bits of what that computes.
func surroundings(plugin, device string) []setting {
	return []setting{
		{"plugin", plugin}, {"device", device}, {"xla_flags", string(flags())}, {"jax_platforms", os.Getenv("JAX_PLATFORMS")}, {"host", hostOf(device)},
	}
}

// Bits is one line with all that decides the bits of what the programs of a library compute
// on a device: fields NAME=VALUE without spaces. Where two lines are equal, the same program
// has the same bits.
func Bits(library, device string) (string, error) {
	hash, err := hashFile(library)
	if err != nil {
		return "", err
	}
	return bitsOf(hash, device), nil
}

func bitsOf(plugin, device string) string {
	var out []string
	for _, x := range surroundings(plugin, device) {
		out = append(out, x.name+"="+short(x.value))
	}
	return strings.Join(out, " ")
}

// shown is how much of a value Bits shows as it is.
const shown = 64

// short is a value without spaces. Where that, or its length, leaves something out, a part of
// the hash of all stands behind it.
func short(value string) string {
	out := strings.Join(strings.Fields(value), "_")
	if out == value && len(out) <= shown {
		return out
	}
	sum := sha256.Sum256([]byte(value))
	return strings.ToValidUTF8(out[:min(len(out), shown)], "") + "~" + hex.EncodeToString(sum[:])[:16]
}
