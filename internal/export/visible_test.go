package export_test

import (
	"testing"

	"temper/internal/export"
)

func TestVisibleTextDoesNothingToATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ä and 漢":          "plain, ä and 漢",
		"\x1b]0;owned\a\x1b[2J":   `\x1b]0;owned\x07\x1b[2J`,
		"a\x00b\r\n\tc":           `a\x00b\x0d\n\tc`,
		"x\u202etxt.exe\u2066":    `x\u202etxt.exe\u2066`,
		"bad \xff utf":            `bad \xff utf`,
		"c1 \u009b31m":            `c1 \x9b31m`,
		"hid\u200bden \U000e0041": `hid\u200bden \U000e0041`,
	} {
		if got := export.Visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
