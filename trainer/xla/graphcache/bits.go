package graphcache

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// setting is a value beside the program that decides the compiled code.
type setting struct{ name, value string }

// surroundings returns the settings of a plugin, given the hash of its file, and a device.
// They decide the compiled code of a program, and so the bits of its results.
func surroundings(plugin, device string) []setting {
	return []setting{
		{"plugin", plugin}, {"device", device}, {"xla_flags", string(flags())}, {"jax_platforms", os.Getenv("JAX_PLATFORMS")}, {"host", hostOf(device)},
	}
}

// Bits returns one line with everything that decides the bits of a library's programs on a
// device: fields NAME=VALUE without spaces. If two lines are equal, the same program has the
// same bits.
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

// shown is the length of a value up to which Bits shows it unchanged.
const shown = 64

// short returns a value without spaces. If that, or its length, drops something, it ends with
// a part of the hash of the whole value.
func short(value string) string {
	out := strings.Join(strings.Fields(value), "_")
	if out == value && len(out) <= shown {
		return out
	}
	sum := sha256.Sum256([]byte(value))
	return strings.ToValidUTF8(out[:min(len(out), shown)], "") + "~" + hex.EncodeToString(sum[:])[:16]
}
