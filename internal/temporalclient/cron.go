package temporalclient

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

type field struct {
	name     string
	min, max int
	names    []string // from min on, in lower case
}

var (
	second  = field{name: "second", max: 59}
	minute  = field{name: "minute", max: 59}
	hour    = field{name: "hour", max: 23}
	day     = field{name: "day of month", min: 1, max: 31}
	month   = field{name: "month", min: 1, max: 12, names: strings.Fields("january february march april may june july august september october november december")}
	weekday = field{name: "day of week", max: 7, names: strings.Fields("sunday monday tuesday wednesday thursday friday saturday")}
	year    = field{name: "year", min: 2000, max: 2100}
)

// CheckCron reports what is wrong with a cron line, if anything: 5 fields (minute, hour,
// day of month, month, day of week), 7 with seconds first and the year last, a
// word such as @daily or @every 6h, and before them CRON_TZ=Area/City.
func CheckCron(line string) error {
	if err := check(line); err != nil {
		return fmt.Errorf("cron %q: %w", line, err)
	}
	return nil
}

// CheckCrons checks the lines of one schedule, which are in one time zone.
func CheckCrons(lines []string) error {
	var bad []error
	for i, line := range lines {
		bad = append(bad, CheckCron(line))
		first, _, _ := cutZone(lines[0])
		if zone, _, _ := cutZone(line); zone != first {
			bad = append(bad, fmt.Errorf("cron line %d is in the time zone %q and line 1 in %q: begin all with the same CRON_TZ, or make two schedules", i+1, cmp.Or(zone, "UTC"), cmp.Or(first, "UTC")))
		}
	}
	return errors.Join(bad...)
}

// cutZone takes the zone from the beginning of a line.
func cutZone(line string) (zone, rest string, found bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "TZ=") && !strings.HasPrefix(line, "CRON_TZ=") {
		return "", line, false
	}
	zone, rest, _ = strings.Cut(line, " ")
	_, zone, _ = strings.Cut(zone, "=")
	return zone, rest, true
}

func check(line string) error {
	zone, line, zoned := cutZone(line)
	if zoned {
		if _, err := time.LoadLocation(zone); err != nil || zone == "" {
			return fmt.Errorf("unknown time zone %q, want one such as Europe/Berlin", zone)
		}
	}
	line, _, _ = strings.Cut(line, "#")
	fields := strings.Fields(line)
	if len(fields) > 0 && strings.HasPrefix(fields[0], "@") {
		return checkWord(fields)
	}
	known := map[int][]field{
		5: {minute, hour, day, month, weekday},
		7: {second, minute, hour, day, month, weekday, year},
	}[len(fields)]
	if known == nil {
		return fmt.Errorf("has %d fields, want 5: minute hour day-of-month month day-of-week (or 7 with seconds first and the year last)", len(fields))
	}
	var bad []string
	for i, f := range known {
		if err := f.check(fields[i]); err != nil {
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

func checkWord(fields []string) error {
	switch word := fields[0]; {
	case word == "@every" && len(fields) == 2:
		for part := range strings.SplitSeq(fields[1], "/") {
			if d, err := time.ParseDuration(part); err != nil || d < 0 {
				return fmt.Errorf("%q is no duration such as 6h", part)
			}
		}
		return nil
	case word == "@every":
		return errors.New("want one duration after @every, for example @every 6h")
	case len(fields) == 1 && strings.Contains(" @yearly @annually @monthly @weekly @daily @midnight @hourly ", " "+word+" "):
		return nil
	default:
		return fmt.Errorf("unknown word %q, want @hourly, @daily, @weekly, @monthly, @yearly or @every", word)
	}
}

// check reads a list of *, values and ranges, each with a step if wanted.
func (f field) check(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		values, step, stepped := strings.Cut(part, "/")
		if n, err := strconv.Atoi(step); stepped && (err != nil || n < 1) {
			return fmt.Errorf("%s: step %q is no whole number of at least 1", f.name, step)
		}
		if values == "*" {
			continue
		}
		first, last, isRange := strings.Cut(values, "-")
		from, err := f.value(first)
		if err != nil {
			return err
		}
		if !isRange {
			continue
		}
		to, err := f.value(last)
		if err != nil {
			return err
		}
		if to < from {
			return fmt.Errorf("%s: range %s ends before it begins", f.name, values)
		}
	}
	return nil
}

// minName is the shortest form of a name: mo for Monday, jan for January.
const minName = 2

func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if len(text) >= minName && strings.HasPrefix(name, strings.ToLower(text)) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%s: %q is not %d to %d", f.name, text, f.min, f.max)
	}
	return n, nil
}
