package temporalclient_test

import (
	"strings"
	"testing"

	"temper/internal/temporalclient"
)

func TestCheck(t *testing.T) {
	for line, want := range map[string]string{
		"0 3 * * *":                               "",
		"CRON_TZ=Europe/Berlin 0 3 * * *":         "",
		"TZ=UTC */15 8-18/2 1,15 jan-jun Mon-fri": "",
		"0 3 * * 7 # on Sundays":                  "",
		"0 3 * * * 2027":                          "has 6 fields, want 5",
		"0 0 3 * * *":                             "has 6 fields, want 5: minute hour day-of-month month day-of-week (or 7 with seconds first and the year last)",
		"0 0 3 * * * 2027":                        "",
		"*/2 * * * * * *":                         "",
		"@daily":                                  "",
		"@every 6h/1h":                            "",
		"":                                        "has 0 fields",
		"0 3 * *":                                 "has 4 fields",
		"* * * * * * * *":                         "has 8 fields",
		"CRON_TZ=Mars/Base 0 3 * * *":             `unknown time zone "Mars/Base"`,
		"CRON_TZ= 0 3 * * *":                      `unknown time zone ""`,
		"61 24 * * *":                             `minute: "61" is not 0 to 59; hour: "24" is not 0 to 23`,
		"0 3 * foo *":                             `month: "foo" is not 1 to 12`,
		"0 5-3 * * *":                             "hour: range 5-3 ends before it begins",
		"*/0 * * * *":                             `minute: step "0"`,
		"@fortnightly":                            `unknown word "@fortnightly"`,
		"@every six":                              `"six" is no duration`,
		"@every":                                  "want one duration",
		"0 3 0 * *":                               `day of month: "0" is not 1 to 31`,
	} {
		err := temporalclient.CheckCron(line)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", line, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line: %v", line, err)
		}
	}
}

// TestOneZone: the server takes lines of one time zone alone, and says it badly.
func TestOneZone(t *testing.T) {
	berlin, here := "CRON_TZ=Europe/Berlin 0 3 * * *", "@hourly"
	for _, lines := range [][]string{nil, {berlin, "TZ=Europe/Berlin 0 4 * * *"}, {here, "0 3 * * *"}} {
		if err := temporalclient.CheckCrons(lines); err != nil {
			t.Errorf("%q: %v", lines, err)
		}
	}
	err := temporalclient.CheckCrons([]string{berlin, here, "99 * * * *"})
	for _, want := range []string{`line 2 is in the time zone "UTC" and line 1 in "Europe/Berlin"`, `"99" is not 0 to 59`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
