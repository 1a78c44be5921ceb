package workers

import (
	"testing"

	"temper/sandbox/node"
)

func TestAddressOfANodeThatJoins(t *testing.T) {
	plain, secure := node.Ready{URL: "http://10.0.0.4:8765"}, node.Ready{URL: "https://0.0.0.0:8765"}
	for _, c := range []struct {
		advertise string
		ready     node.Ready
		want      string
	}{
		{"", plain, "http://10.0.0.4:8765"}, {"a:1", plain, "a:1"}, {"a:1", secure, "https://a:1"},
	} {
		if got := (SandboxOptions{Advertise: c.advertise}).address(c.ready); got != c.want {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
	}
}
