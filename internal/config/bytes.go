package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size that YAML may state as a number or as "256MiB".
type Bytes int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText accepts "1048576", "1024KiB", "1MiB" and "2GiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	s, factor := strings.TrimSpace(string(text)), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return fmt.Errorf("size %q: want a number of bytes such as 1048576 or 256MiB", text)
	}
	*b = Bytes(n * factor)
	return nil
}

// MarshalText writes the largest unit that divides the size.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String is the text form, for example 256MiB.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && int64(b)%u.factor == 0 {
			return strconv.FormatInt(int64(b)/u.factor, 10) + u.suffix
		}
	}
	return "0B"
}
