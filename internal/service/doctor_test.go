package service

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/proc"
)

func TestNumericProfile(t *testing.T) {
	for want, installed := range map[string][]string{
		"numpy, sympy, scipy":                   {"scipy", "numpy", "pandas", "sympy"},
		"sympy; not installed: numpy, scipy":    {"sympy"},
		"none of numpy, sympy, scipy: programs": {"pandas"},
	} {
		if got := numericProfile(installed); !strings.HasPrefix(got, want) {
			t.Errorf("%v: got %q, want %q", installed, got, want)
		}
	}
}

func TestStoreFindingNamesTheServer(t *testing.T) {
	addrs, err := proc.Addresses(1) // which users other than root may listen on, too
	if err != nil {
		t.Fatal(err)
	}
	p := config.DefaultProcess()
	p.Home = t.TempDir()
	for _, key := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, tt := range []struct {
		store string
		state State
		want  string
	}{
		{"s3d://" + addrs[0], Missing, "./task build:s3d"},
		{"", OK, "takes conditional writes"},
		{"s3://temper/x", Missing, "AWS_ACCESS_KEY_ID"},
	} {
		p.Store = tt.store
		f := store(t.Context(), &p)
		if f.State != tt.state || !strings.Contains(f.Detail, tt.want) || strings.Contains(f.Detail, "\n") {
			t.Errorf("store %q: %+v, want %s and %q in one line", tt.store, f, tt.state, tt.want)
		}
	}
}

func TestPrint(t *testing.T) {
	findings := []Finding{
		{Name: "python", State: Missing, Detail: "not found"},
		{Name: "sandbox", State: OK, Detail: "strict mode", Parts: []Part{{"seccomp", "on"}}},
		{Name: "web UI port", State: Note, Detail: "127.0.0.1:1 is free"},
	}
	want := `MISS  python             not found
ok    sandbox            strict mode
        seccomp          on
      web UI port        127.0.0.1:1 is free
`
	var out bytes.Buffer
	if err := Print(&out, findings); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" || NumMissing(findings) != 1 {
		t.Errorf("%d missing, want 1 (-want +got):\n%s", NumMissing(findings), diff)
	}
}
