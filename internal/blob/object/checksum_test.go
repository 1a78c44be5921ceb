package object_test

import (
	"testing"

	"temper/internal/blob/object"
)

// TestCheckValue holds the sum to the check value of the catalogue of CRCs, in
// the form of S3.
func TestCheckValue(t *testing.T) {
	sum := object.NewChecksum()
	if _, err := sum.Write([]byte("123456789")); err != nil {
		t.Fatal(err)
	}
	const want = "rosUhgp5mIg=" // AE8B14860A799888
	if got := object.EncodeChecksum(sum); got != want || sum.Sum64() != 0xae8b14860a799888 {
		t.Errorf("%s %x, want %s", got, sum.Sum64(), want)
	}
}

func TestFormOfASum(t *testing.T) {
	for text, want := range map[string]bool{"rosUhgp5mIg=": true, "AAAAAAAAAAA=": true, "": false, "rosUhgp5mA==": false, "rosUhgp5mIg": false, "ae8b14860a799888": false} {
		if got := object.ValidChecksum(text); got != want {
			t.Errorf("Valid(%q) is %v", text, got)
		}
	}
}
